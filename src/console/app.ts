import { randomBytes } from "node:crypto";
import { once } from "node:events";
import { createServer } from "node:http";
import { getRequestListener } from "@hono/node-server";
import { Hono } from "hono";
import { HTTPException } from "hono/http-exception";
import { messageOf } from "../client-error.ts";
import { parseListenAddress } from "../config/addresses.ts";
import { hasEmbeddedServer } from "../config/schema.ts";
import { openState } from "../gateway/open-state.ts";
import type { OpenConsole, OpenedListener } from "../gateway/start.ts";
import { checkPassword } from "../identity/login.ts";
import { createFormGuard, explainLogin, html, loginError, loginFields } from "../pages/html.ts";
import { Refusal } from "../refusal.ts";
import { accessForms, nameSuggestions, showAccess, showUser } from "./access.ts";
import { decideApproval, showApproval, showApprovals } from "./approvals.ts";
import { showAudit } from "./audit.ts";
import { addForm } from "./changes.ts";
import { hidden, postForm, renderConsolePage } from "./frame.ts";
import { showOverview } from "./overview.ts";
import { endAll, endApplication, endSession, showSessions } from "./own-sessions.ts";
import { openSessions } from "./sessions.ts";
import { openHistory, showState } from "./state.ts";
import { consoleStyle, icon } from "./style.ts";
import {
  browserCookie,
  type Console,
  type ConsoleEnv,
  type ConsoleRequest,
  formNameOf,
  headers,
  knownHost,
  ownForms,
  ownPages,
  readForm,
  sessionCookie,
  type Visitor,
  visitorOf,
} from "./visit.ts";

/** A path of this console with its query; nothing that a browser could resolve to another site. */
const ownPath = /^\/(?![/\\])[\w/.@%?=&*:+-]*$/;

function safeNext(given = "/"): string {
  return ownPath.test(given) ? given : "/";
}

function signInFormOf(browser: string): string {
  return `console-sign-in:${browser}`;
}

function showSignIn(c: ConsoleRequest, user: string, next: string, refusal?: Refusal): Response {
  const { guard, gateway } = c.var;
  const browser = browserCookie.read(c) || randomBytes(32).toString("base64url");
  browserCookie.keep(c, browser);
  const error = refusal && explainLogin(refusal);
  const csrf = guard.tokenFor(signInFormOf(browser));
  const form = html`${hidden("next", next)}
${loginFields(user, error)}
<div class="actions"><button class="primary">Sign in</button></div>`;
  const content = html`${loginError(error)}
${postForm(csrf, "/sign-in", "", form)}
<p class="quiet after">Console of the gateway at <bdi>${gateway.publicUrl}</bdi>. Users see and end their own sessions and apps. Administrators and owners also manage access.</p>
<details class="quiet"><summary>Cannot sign in?</summary>
<ul>
<li>When a gateway first starts, it creates the administrator <code>admin</code>. It prints the password or writes it to the file <code>initial_admin_password</code>.</li>
<li>To reset a lost password, run <code>gatehouse user password &lt;name&gt;</code> on the gateway's machine.</li>
<li>Users of an external authorization server cannot use the console.</li>
</ul></details>`;
  const title = error === undefined ? "Sign in" : "Error: sign in";
  const page = renderConsolePage({ title, heading: html`Sign in`, content });
  if (refusal?.retryAfter !== undefined) c.header("Retry-After", String(refusal.retryAfter));
  if (refusal?.status === 429 || refusal?.status === 503) return c.html(page, refusal.status);
  return c.html(page, refusal === undefined ? 200 : 401);
}

async function postSignIn(c: ConsoleRequest): Promise<Response> {
  const { gateway, listener, sessions, form, session: old } = c.var;
  const [username = "", password = ""] = [form.get("username"), form.get("password")];
  const next = safeNext(form.get("next"));
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
    return showSignIn(c, username, next, error);
  }
}

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

function redirectToSignIn(c: ConsoleRequest): Response {
  const { pathname, search } = new URL(c.req.url);
  const next = c.req.method === "GET" ? `?next=${encodeURIComponent(pathname + search)}` : "";
  return c.redirect(`/sign-in${next}`, 303);
}

function refusalOf(error: unknown): Refusal {
  if (error instanceof Refusal) return error;
  if (!(error instanceof HTTPException)) return new Refusal("internal_error", { cause: error });
  return new Refusal(error.status === 403 ? "origin_not_allowed" : "bad_request", { cause: error });
}

function visitorIfKnown(c: ConsoleRequest): Visitor | undefined {
  try {
    return visitorOf(c);
  } catch (error) {
    // No one is signed in, or the store is unreachable and the user unknown.
    if (error instanceof Refusal) return undefined;
    throw error;
  }
}

function showError(error: unknown, c: ConsoleRequest): Response {
  const { status, message, retryAfter } = refusalOf(error);
  if (status === 500) {
    const fields = { path: c.req.path, reason: messageOf(error) };
    c.var.gateway.log.error(fields, "a page of the console failed");
  }
  const title = status === 404 ? "Page not found" : "The request failed";
  const content = html`<p>${message}.</p>
<p><a href="/">Go to the overview</a></p>`;
  const headers = new Headers({ "Content-Type": "text/html; charset=UTF-8" });
  if (retryAfter !== undefined) headers.set("Retry-After", String(retryAfter));
  return new Response(renderConsolePage({ title, content }, visitorIfKnown(c)), {
    status,
    headers,
  });
}

function createApp(console: Console): Hono<ConsoleEnv> {
  const app = new Hono<ConsoleEnv>({ strict: true });
  app.use(async (c, next) => {
    c.set("gateway", console.gateway);
    c.set("loaded", console.loaded);
    c.set("listener", console.listener);
    c.set("store", console.store);
    c.set("applications", console.applications);
    c.set("suggestNames", console.suggestNames);
    c.set("sessions", console.sessions);
    c.set("guard", console.guard);
    c.set("history", console.history);
    await next();
    c.header("Cache-Control", "no-store");
  });
  app.use(headers, knownHost, ownPages);
  app.onError(showError);
  app.notFound((c) => showError(new Refusal("not_found"), c));
  app.get("/style.css", (c) =>
    c.body(consoleStyle, 200, { "Content-Type": "text/css; charset=utf-8" }),
  );
  app.get("/icon.svg", (c) => c.body(icon, 200, { "Content-Type": "image/svg+xml" }));

  app.use(async (c, next) => {
    const secret = sessionCookie.read(c);
    // A page that refreshes itself keeps no session alive.
    const isRefresh = c.req.method === "GET" && c.req.query("refresh") === "auto";
    if (secret !== undefined) c.set("session", await c.var.sessions.use(secret, isRefresh));
    await next();
  });
  app.post("*", ownForms, async (c, next) => {
    const form = await readForm(c);
    const { session, guard } = c.var;
    const isSigningIn = c.req.path === "/sign-in";
    // The session of this page has ended in the meantime.
    if (session === undefined && !isSigningIn) return redirectToSignIn(c);
    const isBrowser = isSigningIn || session === undefined;
    const name = isBrowser ? signInFormOf(browserCookie.read(c) ?? "") : formNameOf(session);
    if (!guard.isValid(name, form.get("csrf"))) {
      throw new Refusal("origin_not_allowed", {
        message: "This form has expired; go back, reload the page and submit it again",
      });
    }
    c.set("form", form);
    return next();
  });
  app.get("/sign-in", (c) => {
    const next = safeNext(c.req.query("next"));
    return c.var.session === undefined ? showSignIn(c, "", next) : c.redirect(next, 303);
  });
  app.post("/sign-in", postSignIn);
  app.use(async (c, next) => (c.var.session === undefined ? redirectToSignIn(c) : next()));
  app.post("/sign-out", postSignOut);
  app.get("/", (c) => c.redirect("/overview", 303));
  app.get("/overview", showOverview);
  app.get("/state", showState);
  app.get("/access", showAccess);
  app.get("/access/groups", showAccess);
  app.get("/access/user", showUser);
  for (const [path, form] of Object.entries(accessForms)) addForm(app, path, form);
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

/** Replicas share sessions and the secret of forms: each can continue what another has begun. */
async function openSharedSessions({ gateway, store }: OpenedListener) {
  const { access, revocations } = gateway;
  const context = { snapshot: () => access.snapshot, revocations };
  if (store === undefined) {
    return { sessions: openSessions(context), guard: createFormGuard(randomBytes(32)) };
  }
  const { sessionsInStore } = await import("./store-sessions.ts");
  const shared = sessionsInStore(store.store.database, store.replica);
  const secret = await store.authorization.store.secret("console forms", randomBytes(32));
  return { sessions: openSessions(context, undefined, shared), guard: createFormGuard(secret) };
}

export const openConsole: OpenConsole = async (front, loaded, opened) => {
  const { gateway, listener, store } = front;
  const { console, server, store: settings } = gateway.configuration;
  const listen = console.listen && parseListenAddress(console.listen);
  if (!listen) return undefined;
  const app = createApp({
    ...{ gateway, loaded, listener, store },
    ...(await openSharedSessions(front)),
    history: openHistory(gateway.access, settings.access === "store" ? store : undefined),
    applications: hasEmbeddedServer(gateway.configuration)
      ? (await openState(gateway, loaded.serviceDirectory, opened)).store
      : undefined,
    suggestNames: nameSuggestions(gateway),
  });
  const timeout = server.request_timeout * 1000;
  const http = createServer(
    { requestTimeout: timeout, headersTimeout: timeout },
    // By default the library replaces Node's global Request and Response.
    getRequestListener(app.fetch, { overrideGlobalObjects: false }),
  );
  http.listen(listen);
  await once(http, "listening");
  opened.defer(async () => {
    const closed = once(http, "close");
    http.close();
    http.closeAllConnections();
    await closed;
  });
  const address = http.address();
  const port = address !== null && typeof address === "object" ? address.port : listen.port;
  const host = listen.host.includes(":") ? `[${listen.host}]` : listen.host;
  return console.public_url || `http://${host}:${port}`;
};
