import type { HttpBindings } from "@hono/node-server";
import type { Context } from "hono";
import { mayUseAnywhere } from "../access/policy.ts";
import { EVERY_DATABASE } from "../access/roles.ts";
import { isAdministrator, type Snapshot } from "../access/snapshot.ts";
import type { Subject } from "../access/subject.ts";
import { isLoopback } from "../config/addresses.ts";
import type { FormGuard } from "../pages/forms.ts";
import { Refusal } from "../refusal.ts";
import type { AccessHistory } from "./access-history.ts";
import type { ConsoleOptions } from "./options.ts";
import { type ConsolePage, type Refreshing, renderConsolePage } from "./pages/frame.ts";
import type { Session, Sessions } from "./sessions.ts";

/** All that a page may need: what lives as long as the console does. */
export interface Console {
  readonly options: ConsoleOptions;
  readonly sessions: Sessions;
  readonly guard: FormGuard;
  readonly history: AccessHistory;
}

/** What is known of a request on its way to a page. */
export interface ConsoleEnv {
  Bindings: HttpBindings;
  Variables: Console & {
    arrival: Arrival;
    /** Undefined for a browser that nobody is signed in with. */
    session: Session | undefined;
    /** What a POST has brought; its token was checked. */
    form: ReadonlyMap<string, string>;
  };
}

/** A request of a browser. */
export type ConsoleRequest = Context<ConsoleEnv>;

/** Somebody who is signed in, and the rights by which it acts. */
export interface Visitor {
  readonly session: Session;
  readonly actor: Subject;
  /** What a form of its pages carries. */
  readonly csrf: string;
  readonly snapshot: Snapshot;
  readonly isAdministrator: boolean;
  /** True if it may grant on some database. */
  readonly isManager: boolean;
}

/** The name to which the forms of a session are bound. */
export function formNameOf({ tokenId }: Session): string {
  return `console:${tokenId}`;
}

/** Who is signed in. @throws Refusal `unauthenticated` if nobody is, whom the way here keeps out */
export function visitorOf(c: ConsoleRequest): Visitor {
  const { options, guard, session } = c.var;
  if (session === undefined) throw new Refusal("unauthenticated");
  const { snapshot } = options.access;
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

/** Whether a page refreshes itself, as its address says. */
export function refreshingOf(c: ConsoleRequest): Refreshing {
  return { path: c.req.path, isPaused: c.req.query("refresh") === "off", now: Date.now() };
}

/** Answers with a page in the console's frame. */
export function sendPage(
  c: ConsoleRequest,
  visitor: Visitor,
  page: ConsolePage,
  status: 200 | 400 | 401 | 403 | 404 | 409 | 429 | 500 | 503 = 200,
): Response {
  return c.html(renderConsolePage(page, visitor), status);
}

/** How a browser has come: by the public URL, or from this machine itself. */
interface Arrival {
  /** The console's origin as the browser sees it. */
  readonly origin: string;
  /** True behind https: then the cookie is bound to the host, and to https. */
  readonly isSecure: boolean;
}

/** A host as URLs spell it, with its port, and nothing else. */
function readHost(host: string): URL | undefined {
  const url = URL.parse(`http://${host}`);
  const isPlain = url?.host === host.toLowerCase() || `${url?.host}:80` === host.toLowerCase();
  return url !== null && isPlain ? url : undefined;
}

/**
 * Tells by which of the console's names a request has come; undefined for every other name, so that
 * no page elsewhere can have its own name lead here (DNS rebinding).
 *
 * @param publicUrl empty if there is none
 * @param port the listener's
 * @param peer the address of who is connected
 */
export function arrivalOf(
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
