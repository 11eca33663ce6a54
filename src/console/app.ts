import { randomBytes } from "node:crypto";
import { once } from "node:events";
import { createServer } from "node:http";
import { getRequestListener } from "@hono/node-server";
import { Hono } from "hono";
import { HTTPException } from "hono/http-exception";
import { parseListenAddress } from "../config/addresses.ts";
import type { LoadedConfiguration } from "../config/load.ts";
import { openState } from "../gateway/open-state.ts";
import type { OpenConsole, OpenedListener } from "../gateway/start.ts";
import { checkPassword } from "../identity/login.ts";
import { createFormGuard, explainLogin, html, loginError, loginFields } from "../pages/html.ts";
import { Refusal } from "../refusal.ts";
import { check, showAccess, showCheck, showUser } from "./access.ts";
import {
  act,
  addUser,
  endEntry,
  putEntry,
  showAct,
  showEnd,
  showEntry,
  showNew,
} from "./access-forms.ts";
import { decideApproval, showApproval, showApprovals } from "./approvals.ts";
import { showAudit } from "./audit.ts";
import { type ConsolePage, hidden, renderConsolePage } from "./frame.ts";
import { namesOffered } from "./names.ts";
import { showOverview } from "./overview.ts";
import { endAll, endApplication, endSession, showSessions } from "./own-sessions.ts";
import { Sessions } from "./sessions.ts";
import { openHistory, showState } from "./state.ts";
import { consoleStyle, icon } from "./style.ts";
import * as guards from "./visit.ts";
import {
  browserCookie,
  type Console,
  type ConsoleEnv,
  type ConsoleRequest,
  formNameOf,
  sessionCookie,
  type Visitor,
  visitorOf,
} from "./visit.ts";

/** A path of this console with its query; nothing that a browser could resolve to another site. */
const ownPath = /^\/(?![/\\])[\w/.@%?=&*:+-]*$/;

function nextOf(given: string | undefined): string {
  return given !== undefined && ownPath.test(given) ? given : "/";
}

function signInFormOf(browser: string): string {
  return `console-sign-in:${browser}`;
}

interface Attempt {
  readonly username: string;
  readonly next: string;
  readonly refusal?: Refusal;
}

function showSignIn(c: ConsoleRequest, { username, next, refusal }: Attempt): Response {
  const { guard, gateway } = c.var;
  const browser = browserCookie.read(c) || randomBytes(32).toString("base64url");
  browserCookie.keep(c, browser);
  const error = refusal && explainLogin(refusal);
  const csrf = guard.tokenFor(signInFormOf(browser));
  const page = renderConsolePage(
    {
      title: error === undefined ? "Sign in" : "Error: sign in",
      content: html`<h1>Sign in</h1>
${loginError(error)}
<form method="post" action="/sign-in">
${hidden("csrf", csrf)}${hidden("next", next)}
${loginFields(username, error)}
<div class="actions"><button class="primary">Sign in</button></div>
</form>
<p class="quiet after">This is the console of the gateway at <bdi>${gateway.publicUrl}</bdi>. Whoever has a password there sees and ends their own sessions and apps here; administrators and owners also see who may do what.</p>
<details class="quiet"><summary>Cannot sign in?</summary>
<ul>
<li>The first start of a gateway makes the administrator <code>admin</code>, and prints its password or leaves it in the file <code>initial_admin_password</code>.</li>
<li>A password that is lost is set anew on the gateway's machine: <code>gatehouse user password &lt;name&gt;</code>.</li>
<li>Users of another authorization server have no password here, and so no console.</li>
</ul></details>`,
    },
    undefined,
  );
  if (refusal?.retryAfter !== undefined) c.header("Retry-After", String(refusal.retryAfter));
  if (refusal?.status === 429 || refusal?.status === 503) return c.html(page, refusal.status);
  return c.html(page, refusal === undefined ? 200 : 401);
}

/** `GET /sign-in`: the form; redirects a visitor who is already signed in. */
function getSignIn(c: ConsoleRequest): Response {
  const next = nextOf(c.req.query("next"));
  if (c.var.session !== undefined) return c.redirect(next, 303);
  return showSignIn(c, { username: "", next });
}

/** `POST /sign-in`: logs in through the gateway and replaces the browser's old session. */
async function postSignIn(c: ConsoleRequest): Promise<Response> {
  const { gateway, listener, sessions, form, session: old } = c.var;
  const [username = "", password = ""] = [form.get("username"), form.get("password")];
  const next = nextOf(form.get("next"));
  const origin = listener.originOf(c.env.incoming);
  // An unknown username may be a password typed into the wrong field.
  const known = gateway.access.snapshot.users.has(username) ? username : undefined;
  const event = { user: known, address: origin.address };
  try {
    const user = await checkPassword(gateway.login, username, password, origin);
    gateway.audit.event("console_login", { ...event, outcome: "allowed" }, "info");
    if (old !== undefined) await sessions.end(old.tokenId);
    const userAgent = (c.req.header("user-agent") ?? "").slice(0, 256);
    sessionCookie.keep(c, await sessions.open(user, { address: origin.address, userAgent }));
    return c.redirect(next, 303);
  } catch (error) {
    if (!(error instanceof Refusal)) throw error;
    gateway.audit.event("console_login", { ...event, outcome: error.code }, "warn");
    return showSignIn(c, { username, next, refusal: error });
  }
}

/** `POST /sign-out`: ends the session, even if the browser keeps the cookie. */
async function postSignOut(c: ConsoleRequest): Promise<Response> {
  const { gateway, listener, sessions, session } = c.var;
  if (session !== undefined) {
    await sessions.end(session.tokenId);
    const { address } = listener.originOf(c.env.incoming);
    gateway.audit.event("console_logout", { user: session.username, address }, "info");
  }
  sessionCookie.drop(c);
  return c.redirect("/sign-in", 303);
}

/** True for a page that refreshes itself, which must not keep a session alive. */
function isRefresh(c: ConsoleRequest): boolean {
  return c.req.method === "GET" && c.req.query("refresh") === "auto";
}

/** The browser's session, unless it has ended. */
async function sessionOf(c: ConsoleRequest) {
  const secret = sessionCookie.read(c);
  return secret === undefined ? undefined : c.var.sessions.use(secret, isRefresh(c));
}

/** The name to which this visitor's forms are bound. */
function expectedForm(c: ConsoleRequest): string {
  const { session } = c.var;
  const isSigningIn = c.req.path === "/sign-in";
  if (isSigningIn) return signInFormOf(guards.browserCookie.read(c) ?? "");
  return session === undefined ? "" : formNameOf(session);
}

/** Redirects to `/sign-in` and remembers the page to return to. */
function toSignIn(c: ConsoleRequest): Response {
  const { pathname, search } = new URL(c.req.url);
  const next = c.req.method === "GET" ? `?next=${encodeURIComponent(pathname + search)}` : "";
  return c.redirect(`/sign-in${next}`, 303);
}

function refusalOf(error: unknown): Refusal {
  if (error instanceof Refusal) return error;
  if (error instanceof HTTPException && error.status === 403)
    return new Refusal("origin_not_allowed");
  if (error instanceof HTTPException) return new Refusal("bad_request", { cause: error });
  return new Refusal("internal_error", { cause: error });
}

/** The signed-in visitor, if known. Before the guards have passed, no one is signed in. */
function readerOf(c: ConsoleRequest): Visitor | undefined {
  try {
    return visitorOf(c);
  } catch (error) {
    // No one is signed in, or the store is unreachable and the user unknown.
    if (error instanceof Refusal) return undefined;
    throw error;
  }
}

/** Renders an error, inside the console's frame for a signed-in visitor. */
function showError(error: unknown, c: ConsoleRequest): Response {
  const refusal = refusalOf(error);
  const { status, message, retryAfter } = refusal;
  if (status === 500) {
    const reason = error instanceof Error ? error.message : "unknown";
    c.var.gateway.log.error({ path: c.req.path, reason }, "a page of the console failed");
  }
  const page = errorPage(
    status === 404 ? "There is no such page" : "That did not work",
    `${message}.`,
  );
  const headers = {
    "Content-Type": "text/html; charset=UTF-8",
    ...(retryAfter === undefined ? {} : { "Retry-After": String(retryAfter) }),
  };
  return new Response(renderConsolePage(page, readerOf(c)), { status, headers });
}

/** Creates the console's routes. @param port the listener's port, once known */
function createApp(console: Console, port: () => number): Hono<ConsoleEnv> {
  const app = new Hono<ConsoleEnv>({ strict: true });
  app.use((c, next) => {
    c.set("gateway", console.gateway);
    c.set("loaded", console.loaded);
    c.set("listener", console.listener);
    c.set("store", console.store);
    c.set("applications", console.applications);
    c.set("namesOffered", console.namesOffered);
    c.set("sessions", console.sessions);
    c.set("guard", console.guard);
    c.set("history", console.history);
    return next();
  });
  app.use(guards.headers, guards.uncached, guards.knownHost(port), guards.ownPages);
  app.onError(showError);
  app.notFound((c) => showError(new Refusal("not_found"), c));
  app.get("/style.css", (c) =>
    c.body(consoleStyle, 200, { "Content-Type": "text/css; charset=utf-8" }),
  );
  app.get("/icon.svg", (c) => c.body(icon, 200, { "Content-Type": "image/svg+xml" }));

  app.use(async (c, next) => {
    c.set("session", await sessionOf(c));
    await next();
  });
  app.post("*", guards.ownForms, async (c, next) => {
    const form = await guards.readForm(c);
    // The session of this page has ended in the meantime.
    if (c.var.session === undefined && c.req.path !== "/sign-in") return toSignIn(c);
    if (!c.var.guard.isRight(expectedForm(c), form.get("csrf"))) {
      throw new Refusal("origin_not_allowed", {
        message: "This form is out of date: go back, load the page again and send it once more",
      });
    }
    c.set("form", form);
    return next();
  });
  app.get("/sign-in", getSignIn);
  app.post("/sign-in", postSignIn);
  app.use(async (c, next) => (c.var.session === undefined ? toSignIn(c) : next()));
  app.post("/sign-out", postSignOut);
  app.get("/", (c) => c.redirect("/overview", 303));
  app.get("/overview", showOverview);
  app.get("/state", showState);
  app.get("/access", showAccess);
  app.get("/access/user", showUser);
  app.get("/access/entry", showEntry);
  app.post("/access/entry", putEntry);
  app.get("/access/end", showEnd);
  app.post("/access/end", endEntry);
  app.get("/access/act", showAct);
  app.post("/access/act", act);
  app.get("/access/new", showNew);
  app.post("/access/new", addUser);
  app.get("/access/check", showCheck);
  app.post("/access/check", check);
  app.get("/approvals", showApprovals);
  app.get("/approvals/:id", (c) => showApproval(c));
  app.post("/approvals/:id", decideApproval);
  app.get("/audit", showAudit);
  app.get("/sessions", showSessions);
  app.post("/sessions/end", endSession);
  app.post("/sessions/disconnect", endApplication);
  app.post("/sessions/end-all", endAll);
  return app;
}

/** State of the embedded authorization server, if there is one. */
async function openApplications(
  { gateway }: OpenedListener,
  { serviceDirectory }: LoadedConfiguration,
  opened: AsyncDisposableStack,
) {
  const { mcp } = gateway.configuration;
  if (!mcp.enabled || mcp.authorization_servers.length > 0) return undefined;
  return (await openState(gateway, serviceDirectory, opened)).store;
}

/**
 * Replicas share sessions and the secret of forms, so that each can continue what another has
 * begun.
 */
async function openSessions({ gateway, store }: OpenedListener) {
  const { access, revocations } = gateway;
  const context = { snapshot: () => access.snapshot, revocations };
  const now = () => performance.now();
  if (store === undefined) {
    return { sessions: new Sessions(context, now), guard: createFormGuard(randomBytes(32)) };
  }
  const { sessionsInStore } = await import("./store-sessions.ts");
  const held = sessionsInStore(store.store.database, store.replica);
  const secret = await store.authorization.store.secret("console forms", randomBytes(32));
  return { sessions: new Sessions(context, now, held), guard: createFormGuard(secret) };
}

/** Opens the console if one is configured. The stack closes it. */
export const openConsole: OpenConsole = async (front, loaded, opened) => {
  const { gateway, listener, store } = front;
  const { console, server, store: settings } = gateway.configuration;
  const listen = console.listen === undefined ? undefined : parseListenAddress(console.listen);
  if (listen === undefined) return undefined;
  const log = settings.access === "store" ? store : undefined;
  let port = listen.port;
  const app = createApp(
    {
      ...{ gateway, loaded, listener, store },
      ...(await openSessions(front)),
      history: openHistory(gateway.access, log),
      applications: await openApplications(front, loaded, opened),
      namesOffered: namesOffered(gateway),
    },
    () => port,
  );
  const timeout = server.request_timeout * 1000;
  const http = createServer(
    { requestTimeout: timeout, headersTimeout: timeout },
    // By default the library replaces Node's global Request and Response.
    getRequestListener(app.fetch, { overrideGlobalObjects: false }),
  );
  http.listen(listen);
  await once(http, "listening");
  const address = http.address();
  if (address !== null && typeof address === "object") port = address.port;
  opened.defer(async () => {
    const closed = once(http, "close");
    http.close();
    http.closeAllConnections();
    await closed;
  });
  const host = listen.host.includes(":") ? `[${listen.host}]` : listen.host;
  return console.public_url || `http://${host}:${port}`;
};

function errorPage(heading: string, sentence: string): ConsolePage {
  return {
    title: heading,
    content: html`<h1>${heading}</h1>
<p>${sentence}</p>
<p><a href="/">Go to the console's first page</a></p>`,
  };
}
