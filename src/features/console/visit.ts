import type { HttpBindings } from "@hono/node-server";
import type { Context, MiddlewareHandler } from "hono";
import { deleteCookie, getCookie, setCookie } from "hono/cookie";
import { csrf } from "hono/csrf";
import { secureHeaders } from "hono/secure-headers";
import { maySeeGrants, requireManager } from "../../core/access/administration.ts";
import type { Subject } from "../../core/access/grant.ts";
import { isAdministrator, mayUseAnywhere } from "../../core/access/policy.ts";
import { EVERY_DATABASE } from "../../core/access/roles.ts";
import type { FormGuard, Html } from "../../core/base/html.ts";
import { Refusal } from "../../core/base/refusal.ts";
import { isLoopback } from "../../core/config/addresses.ts";
import type { Gateway } from "../../core/http/gateway.ts";
import type { Listener } from "../../core/http/server.ts";
import type { ExternalIssuers } from "../../core/identity/authenticate.ts";
import type { LoginOrigin } from "../../core/identity/throttle.ts";
import type { Approvals } from "../approvals/open-approvals.ts";
import type { SignIns } from "../oauth/client/sign-ins.ts";
import type { StateStore } from "../oauth/server/state-store.ts";
import type { StoreReplica } from "../store/open.ts";
import { type ConsolePage, renderConsolePage, type Visitor } from "./frame.ts";
import type { History } from "./history.ts";
import type { SuggestNames } from "./names.ts";
import type { CurrentSession, Session, Sessions } from "./sessions.ts";

export interface Console {
  readonly gateway: Gateway;
  readonly listener: Pick<Listener, "secure" | "originOf">;
  /** Undefined if all state is in files. */
  readonly store: StoreReplica | undefined;
  readonly approvals: Approvals;
  /** Undefined without external issuers. */
  readonly issuers: ExternalIssuers | undefined;
  /** Undefined without sign-in through a provider. */
  readonly signIns: SignIns | undefined;
  /** State of the embedded authorization server; undefined without one. */
  readonly applications: StateStore | undefined;
  readonly suggestNames: SuggestNames;
  readonly sessions: Sessions;
  /** Counts a begun sign-in. @returns seconds until a retry, 0 if allowed */
  readonly countSignIn: (origin: LoginOrigin) => Promise<number>;
  readonly guard: FormGuard;
  readonly history: History;
}

interface Arrival {
  readonly origin: string;
  /** True over https: the cookie is then bound to the host and to https. */
  readonly isSecure: boolean;
}

export interface ConsoleEnv {
  Bindings: HttpBindings;
  Variables: Console & {
    arrival: Arrival;
    session: CurrentSession | undefined;
    /** Fields of a POST whose form token was checked. */
    form: ReadonlyMap<string, string>;
    /** The message about the last change, for the next page. */
    notice: Html | undefined;
  };
}

export type ConsoleRequest = Context<ConsoleEnv>;

export function formNameOf({ tokenId }: Session): string {
  return `console:${tokenId}`;
}

/** @throws Refusal `unauthenticated` if no one is signed in, which the middleware rules out */
export function visitorOf(c: ConsoleRequest): Visitor {
  const { gateway, guard, session } = c.var;
  if (session === undefined) throw new Refusal("unauthenticated");
  const { snapshot } = gateway.access;
  const { username, signIn } = session;
  const actor: Subject = { ...signIn?.subject, username, tokenDatabase: EVERY_DATABASE };
  return {
    session,
    actor,
    csrf: guard.tokenFor(formNameOf(session)),
    snapshot,
    isAdministrator: isAdministrator(snapshot, actor),
    isManager: mayUseAnywhere(snapshot, actor, "GRANT"),
    maySee: (database: string) => maySeeGrants(snapshot, actor, database),
    earliestIssue: (name) => gateway.revocations.earliestIssue(name),
  };
}

/** @throws Refusal `role_insufficient` unless the visitor may grant somewhere */
export function managerOf(c: ConsoleRequest): Visitor {
  const visitor = visitorOf(c);
  requireManager(visitor.snapshot, visitor.actor);
  return visitor;
}

export function sendPage(c: ConsoleRequest, page: ConsolePage): Response {
  const { notice } = c.var;
  if (notice !== undefined) noticeCookie.drop(c);
  return c.html(renderConsolePage({ ...page, notice }, visitorOf(c)), page.failure?.status);
}

export function refreshOf({ req }: ConsoleRequest) {
  return { path: req.path, isPaused: req.query("refresh") === "off" };
}

/**
 * Finds the console's name that a request used: its public one, or one of this machine with the
 * listener's port. Undefined for any other, so a foreign page cannot point its own name here.
 */
function arrivalOf(c: ConsoleRequest): Arrival | undefined {
  const { headers, socket } = c.env.incoming;
  const publicUrl = c.var.gateway.configuration.console.public_url;
  const { host } = headers;
  if (host === undefined) return undefined;
  const isSecure = publicUrl.startsWith("https:");
  if (publicUrl !== "") {
    const { host: known } = new URL(publicUrl);
    // Reverse proxies may send the default port, which browsers leave out.
    const names = [known, `${known}:${isSecure ? 443 : 80}`];
    if (names.includes(host.toLowerCase())) return { origin: publicUrl, isSecure };
  }
  const url = URL.parse(`http://${host}`);
  // A host with its port must be spelled as URLs spell it.
  const isPlain = [url?.host, `${url?.host}:80`].includes(host.toLowerCase());
  if (!url || !isPlain || Number(url.port || 80) !== socket.localPort) return undefined;
  const isLocal = isLoopback(url.hostname) && isLoopback(socket.remoteAddress ?? "");
  return isLocal ? { origin: url.origin, isSecure: false } : undefined;
}

/** Pages must not be framed, and no script may run in them. */
export const headers = secureHeaders({
  contentSecurityPolicy: {
    defaultSrc: ["'none'"],
    styleSrc: ["'self'"],
    imgSrc: ["'self'"],
    formAction: ["'self'"],
    frameAncestors: ["'none'"],
    baseUri: ["'none'"],
  },
  xFrameOptions: "DENY",
  referrerPolicy: "same-origin",
  strictTransportSecurity: false,
});

/** Rejects requests under any name but the console's own (DNS rebinding). */
export const knownHost: MiddlewareHandler<ConsoleEnv> = async (c, next) => {
  const arrival = arrivalOf(c);
  if (arrival === undefined) {
    const message =
      "The console does not accept this Host: use the URL in console.public_url or a loopback address";
    throw new Refusal("host_not_allowed", { message });
  }
  c.set("arrival", arrival);
  await next();
};

/** Lets other sites link to pages, but neither embed nor load them (Fetch Metadata). */
export const ownPages: MiddlewareHandler<ConsoleEnv> = async (c, next) => {
  const site = c.req.header("sec-fetch-site") ?? "none";
  const isOwn = site === "same-origin" || site === "none";
  const isLink = c.req.method === "GET" && c.req.header("sec-fetch-dest") === "document";
  if (!isOwn && !isLink) throw new Refusal("origin_not_allowed");
  await next();
};

export const ownForms = csrf({
  origin: (origin, c: ConsoleRequest) => origin === c.var.arrival.origin,
});

/** A cookie that scripts cannot read; over https it is also bound to the host (RFC 6265bis). */
function serverCookie(name: string, maxAge?: number) {
  const optionsOf = ({ isSecure }: Arrival) => {
    const lifetime = maxAge === undefined ? {} : { maxAge };
    const common = { path: "/", httpOnly: true, sameSite: "Lax", ...lifetime } as const;
    return isSecure ? { ...common, secure: true, prefix: "host" as const } : common;
  };
  return {
    read: (c: ConsoleRequest) =>
      c.var.arrival.isSecure ? getCookie(c, name, "host") : getCookie(c, name),
    keep: (c: ConsoleRequest, value: string) => setCookie(c, name, value, optionsOf(c.var.arrival)),
    drop: (c: ConsoleRequest) => void deleteCookie(c, name, optionsOf(c.var.arrival)),
  };
}

export const sessionCookie = serverCookie("gatehouse-console");

/** Holds the signed message about a change until the next page. */
export const noticeCookie = serverCookie("gatehouse-console-notice");

/** The time zone of a browser's choice. Browsers keep cookies for 400 days at most. */
export const zoneCookie = serverCookie("gatehouse-console-zone", 400 * 86_400);

/** Identifies a browser that is not signed in; its sign-in form is bound to this name. */
export const browserCookie = serverCookie("gatehouse-console-browser");
