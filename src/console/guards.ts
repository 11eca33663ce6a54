import type { MiddlewareHandler } from "hono";
import { deleteCookie, getCookie, setCookie } from "hono/cookie";
import { csrf } from "hono/csrf";
import { secureHeaders } from "hono/secure-headers";
import { Refusal } from "../refusal.ts";
import { arrivalOf, type ConsoleEnv, type ConsoleRequest } from "./visit.ts";

/** What stands before every page, in this order. */

/** Bytes of a form; a query to be explained is the largest thing that one may hold. */
const FORM_BYTES = 256 * 1024;

const policy = {
  defaultSrc: ["'none'"],
  styleSrc: ["'self'"],
  imgSrc: ["'self'"],
  formAction: ["'self'"],
  frameAncestors: ["'none'"],
  baseUri: ["'none'"],
};

/** Nobody keeps or frames a page, and no script runs in it. */
export const headers = secureHeaders({
  contentSecurityPolicy: policy,
  xFrameOptions: "DENY",
  referrerPolicy: "same-origin",
  strictTransportSecurity: false,
});

/** The same again for caches. */
export const uncached: MiddlewareHandler<ConsoleEnv> = async (c, next) => {
  await next();
  c.header("Cache-Control", "no-store");
};

/** Lets requests by the console's own names in. @param port the listener's */
export function knownHost(port: () => number): MiddlewareHandler<ConsoleEnv> {
  return async (c, next) => {
    const { headers, socket } = c.env.incoming;
    const names = { publicUrl: c.var.options.publicUrl, port: port() };
    const arrival = arrivalOf(names, headers.host, socket.remoteAddress ?? "");
    if (arrival === undefined) throw new Refusal("host_not_allowed");
    c.set("arrival", arrival);
    await next();
  };
}

/**
 * Keeps other sites from having pages loaded into theirs, by what browsers say of a request
 * (Fetch Metadata): they may lead here, and no more.
 */
export const ownPages: MiddlewareHandler<ConsoleEnv> = async (c, next) => {
  const site = c.req.header("sec-fetch-site") ?? "none";
  const isOwn = site === "same-origin" || site === "none";
  const isLink = c.req.method === "GET" && c.req.header("sec-fetch-dest") === "document";
  if (!isOwn && !isLink) throw new Refusal("origin_not_allowed");
  await next();
};

/** Takes forms of the console's own pages alone. */
export const ownForms = csrf({
  origin: (origin, c: ConsoleRequest) => origin === c.var.arrival.origin,
});

/** A cookie for the server alone; behind https it is bound to the host, too (RFC 6265bis). */
function serverCookie(name: string) {
  const optionsOf = ({ isSecure }: ConsoleEnv["Variables"]["arrival"]) => {
    const common = { path: "/", httpOnly: true, sameSite: "Lax" } as const;
    return isSecure ? { ...common, secure: true, prefix: "host" as const } : common;
  };
  return {
    read: (c: ConsoleRequest) =>
      c.var.arrival.isSecure ? getCookie(c, name, "host") : getCookie(c, name),
    /** Has a browser keep a value until it is closed. */
    keep: (c: ConsoleRequest, value: string) => setCookie(c, name, value, optionsOf(c.var.arrival)),
    drop: (c: ConsoleRequest) => void deleteCookie(c, name, optionsOf(c.var.arrival)),
  };
}

/** The secret of a browser's session. */
export const sessionCookie = serverCookie("gatehouse-console");

/** The name of a browser that nobody is signed in with, to which the sign-in form is bound. */
export const browserCookie = serverCookie("gatehouse-console-browser");

/**
 * Reads the form of a POST. Bytes are counted as they arrive, since a reverse proxy may send the
 * body in chunks.
 *
 * @throws Refusal `unsupported_media_type`, `body_too_large`, or `bad_request` for a repeated field
 */
export async function readForm(c: ConsoleRequest): Promise<ReadonlyMap<string, string>> {
  const [type = ""] = (c.req.header("content-type") ?? "").split(";");
  if (type.trim().toLowerCase() !== "application/x-www-form-urlencoded") {
    throw new Refusal("unsupported_media_type", { message: "The body must be a form" });
  }
  if (Number(c.req.header("content-length")) > FORM_BYTES) throw new Refusal("body_too_large");
  const chunks: Buffer[] = [];
  let size = 0;
  // The request stays open when the loop ends early, so that the answer can still be sent.
  for await (const chunk of c.env.incoming.iterator({ destroyOnReturn: false })) {
    size += chunk.length;
    if (size > FORM_BYTES) throw new Refusal("body_too_large");
    chunks.push(chunk);
  }
  const fields = new Map<string, string>();
  for (const [field, value] of new URLSearchParams(Buffer.concat(chunks).toString())) {
    if (fields.has(field)) throw new Refusal("bad_request", { message: `${field} is given twice` });
    fields.set(field, value);
  }
  return fields;
}
