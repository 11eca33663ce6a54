import type { HttpBindings } from "@hono/node-server";
import type { Context, MiddlewareHandler } from "hono";
import { deleteCookie, getCookie, setCookie } from "hono/cookie";
import { csrf } from "hono/csrf";
import { secureHeaders } from "hono/secure-headers";
import { mayUseAnywhere } from "../access/policy.ts";
import { EVERY_DATABASE, type Subject } from "../access/roles.ts";
import { isAdministrator, type Snapshot } from "../access/snapshot.ts";
import { isLoopback } from "../config/addresses.ts";
import type { LoadedConfiguration } from "../config/load.ts";
import type { Gateway } from "../gateway/gateway.ts";
import type { Listener } from "../gateway/server.ts";
import type { StateStore } from "../oauth/server/state-store.ts";
import type { FormGuard } from "../pages/html.ts";
import { Refusal } from "../refusal.ts";
import type { StoreReplica } from "../store/open.ts";
import { type ConsolePage, renderConsolePage } from "./frame.ts";
import type { namesOffered } from "./names.ts";
import type { Session, Sessions } from "./sessions.ts";
import type { openHistory } from "./state.ts";

/** What pages share for the lifetime of the console. */
export interface Console {
  readonly gateway: Gateway;
  readonly loaded: LoadedConfiguration;
  readonly listener: Pick<Listener, "secure" | "originOf">;
  /** Undefined if all state is in files. */
  readonly store: StoreReplica | undefined;
  /** State of the embedded authorization server; undefined if there is none. */
  readonly applications: StateStore | undefined;
  readonly namesOffered: ReturnType<typeof namesOffered>;
  readonly sessions: Sessions;
  readonly guard: FormGuard;
  readonly history: ReturnType<typeof openHistory>;
}

export interface ConsoleEnv {
  Bindings: HttpBindings;
  Variables: Console & {
    arrival: Arrival;
    /** Undefined if no one is signed in. */
    session: Session | undefined;
    /** Fields of a POST whose form token was checked. */
    form: ReadonlyMap<string, string>;
  };
}

export type ConsoleRequest = Context<ConsoleEnv>;

/** A signed-in user with the rights in force. */
export interface Visitor {
  readonly session: Session;
  readonly actor: Subject;
  readonly csrf: string;
  readonly snapshot: Snapshot;
  readonly isAdministrator: boolean;
  /** True if the visitor may grant on some database. */
  readonly isManager: boolean;
}

export function formNameOf({ tokenId }: Session): string {
  return `console:${tokenId}`;
}

/** @throws Refusal `unauthenticated` if no one is signed in, which the middleware rules out */
export function visitorOf(c: ConsoleRequest): Visitor {
  const { gateway, guard, session } = c.var;
  if (session === undefined) throw new Refusal("unauthenticated");
  const { snapshot } = gateway.access;
  const actor: Subject = { username: session.username, tokenDatabase: EVERY_DATABASE };
  return {
    session,
    actor,
    csrf: guard.tokenFor(formNameOf(session)),
    snapshot,
    isAdministrator: isAdministrator(snapshot, session.username),
    isManager: mayUseAnywhere(snapshot, actor, "GRANT"),
  };
}

export function sendPage(
  c: ConsoleRequest,
  visitor: Visitor,
  page: ConsolePage,
  status: 200 | 400 | 401 | 403 | 404 | 409 | 429 | 500 | 503 = 200,
): Response {
  return c.html(renderConsolePage(page, visitor), status);
}

/** How the browser reached the console: through the public URL or on this machine. */
interface Arrival {
  /** The console's origin as the browser sees it. */
  readonly origin: string;
  /** True over https: the cookie is then bound to the host and to https. */
  readonly isSecure: boolean;
}

/** Parses a host with its port as URLs spell it; rejects anything else. */
function readHost(host: string): URL | undefined {
  const url = URL.parse(`http://${host}`);
  const isPlain = url?.host === host.toLowerCase() || `${url?.host}:80` === host.toLowerCase();
  return url !== null && isPlain ? url : undefined;
}

/**
 * Finds the console's name that a request used; undefined for any other name. A foreign page
 * therefore cannot point its own name here (DNS rebinding).
 *
 * @param publicUrl empty if there is none
 * @param port the listener's
 * @param peer the address of the connected client
 */
function arrivalOf(
  { publicUrl, port }: { publicUrl: string; port: number },
  host: string | undefined,
  peer: string,
): Arrival | undefined {
  if (host === undefined) return undefined;
  const isPublic = publicUrl !== "" && new URL(publicUrl).host === host.toLowerCase();
  if (isPublic) return { origin: publicUrl, isSecure: publicUrl.startsWith("https:") };
  const url = readHost(host);
  if (url === undefined || Number(url.port || 80) !== port) return undefined;
  const isLocal = isLoopback(url.hostname) && isLoopback(peer);
  return isLocal ? { origin: url.origin, isSecure: false } : undefined;
}

/** Middleware for every page, in this order. */

/** Maximum form size; a query to be explained is the largest value. */
const FORM_BYTES = 256 * 1024;

const policy = {
  defaultSrc: ["'none'"],
  styleSrc: ["'self'"],
  imgSrc: ["'self'"],
  formAction: ["'self'"],
  frameAncestors: ["'none'"],
  baseUri: ["'none'"],
};

/** Pages must not be framed, and no script may run in them. */
export const headers = secureHeaders({
  contentSecurityPolicy: policy,
  xFrameOptions: "DENY",
  referrerPolicy: "same-origin",
  strictTransportSecurity: false,
});

/** Sends `Cache-Control: no-store`. */
export const uncached: MiddlewareHandler<ConsoleEnv> = async (c, next) => {
  await next();
  c.header("Cache-Control", "no-store");
};

/**
 * Rejects requests under any name but the console's own (DNS rebinding). @param port the listener's
 */
export function knownHost(port: () => number): MiddlewareHandler<ConsoleEnv> {
  return async (c, next) => {
    const { headers, socket } = c.env.incoming;
    const names = { publicUrl: c.var.gateway.configuration.console.public_url, port: port() };
    const arrival = arrivalOf(names, headers.host, socket.remoteAddress ?? "");
    if (arrival === undefined) throw new Refusal("host_not_allowed");
    c.set("arrival", arrival);
    await next();
  };
}

/**
 * Keeps other sites from embedding or loading pages, by the Fetch Metadata headers. Other sites may
 * only link here.
 */
export const ownPages: MiddlewareHandler<ConsoleEnv> = async (c, next) => {
  const site = c.req.header("sec-fetch-site") ?? "none";
  const isOwn = site === "same-origin" || site === "none";
  const isLink = c.req.method === "GET" && c.req.header("sec-fetch-dest") === "document";
  if (!isOwn && !isLink) throw new Refusal("origin_not_allowed");
  await next();
};

/** Accepts only forms from the console's own pages. */
export const ownForms = csrf({
  origin: (origin, c: ConsoleRequest) => origin === c.var.arrival.origin,
});

/** A cookie that scripts cannot read; over https it is also bound to the host (RFC 6265bis). */
function serverCookie(name: string) {
  const optionsOf = ({ isSecure }: ConsoleEnv["Variables"]["arrival"]) => {
    const common = { path: "/", httpOnly: true, sameSite: "Lax" } as const;
    return isSecure ? { ...common, secure: true, prefix: "host" as const } : common;
  };
  return {
    read: (c: ConsoleRequest) =>
      c.var.arrival.isSecure ? getCookie(c, name, "host") : getCookie(c, name),
    /** Sets the cookie until the browser is closed. */
    keep: (c: ConsoleRequest, value: string) => setCookie(c, name, value, optionsOf(c.var.arrival)),
    drop: (c: ConsoleRequest) => void deleteCookie(c, name, optionsOf(c.var.arrival)),
  };
}

export const sessionCookie = serverCookie("gatehouse-console");

/** Identifies a browser that is not signed in; its sign-in form is bound to this name. */
export const browserCookie = serverCookie("gatehouse-console-browser");

/**
 * Reads the form of a POST. Bytes are counted on arrival, since a reverse proxy may send the body
 * in chunks.
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
  // Keeps the request open when the loop ends early, so that the answer can still be sent.
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
