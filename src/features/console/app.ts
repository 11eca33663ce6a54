import { randomBytes } from "node:crypto";
import { once } from "node:events";
import { createServer, type ServerResponse } from "node:http";
import { getRequestListener } from "@hono/node-server";
import { Hono } from "hono";
import { HTTPException } from "hono/http-exception";
import type { OpenConsole, OpenedListener } from "../../app/start.ts";
import { errorMessage } from "../../core/base/client-error.ts";
import { createFormGuard, html } from "../../core/base/html.ts";
import { Refusal, type RefusalCode } from "../../core/base/refusal.ts";
import { parseListenAddress } from "../../core/config/addresses.ts";
import { hasEmbeddedServer } from "../../core/config/schema.ts";
import { limitAnswers } from "../../core/http/connections.ts";
import { resolveTarget } from "../../core/http/exchange.ts";
import { limitConnections } from "../../core/http/system-limits.ts";
import { keysOf } from "../../core/json/exact.ts";
import { addressLimit, OAuthProblem, readForm } from "../oauth/server/http.ts";
import { openState } from "../oauth/server/state-file.ts";
import { accessForms, showAccess, showUser } from "./access.ts";
import { decideApproval, showApproval, showApprovals } from "./approvals.ts";
import { exportAudit, showAudit } from "./audit.ts";
import { addForm, logRefusal } from "./changes.ts";
import { renderConsolePage, type Visitor } from "./frame.ts";
import { openHistory } from "./history.ts";
import { inZone } from "./moment.ts";
import { nameSuggestions } from "./names.ts";
import { readNotice } from "./notice.ts";
import { showOverview } from "./overview.ts";
import {
  changePassword,
  chooseZone,
  endAll,
  endApplication,
  endSession,
  showSessions,
} from "./own-sessions.ts";
import { showSearch } from "./search.ts";
import { type CurrentSession, openSessions } from "./sessions.ts";
import {
  finishSignIn,
  postSignIn,
  postSignOut,
  safeNext,
  showSignIn,
  signInFormOf,
  startSignIn,
} from "./sign-in.ts";
import { showState } from "./state.ts";
import { consoleStyle, icon } from "./style.ts";
import { showTable } from "./table-access.ts";
import { revokeToken } from "./tokens.ts";
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
  sessionCookie,
  visitorOf,
  zoneCookie,
} from "./visit.ts";

function redirectToSignIn(c: ConsoleRequest): Response {
  const { pathname, search } = new URL(c.req.url);
  const next = c.req.method === "GET" ? `?next=${encodeURIComponent(pathname + search)}` : "";
  return c.redirect(`/sign-in${next}`, 303);
}

/** Codes for the problems of a request, by their status. Any other is a bad request. */
const refusalCodes: Readonly<Record<number, RefusalCode>> = {
  403: "origin_not_allowed",
  413: "body_too_large",
  415: "unsupported_media_type",
};

function refusalOf(error: unknown): Refusal {
  if (error instanceof Refusal) return error;
  const isOfRequest = error instanceof HTTPException || error instanceof OAuthProblem;
  const code = isOfRequest ? (refusalCodes[error.status] ?? "bad_request") : "internal_error";
  return new Refusal(code, { cause: error });
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
  const refusal = refusalOf(error);
  const { status, message, retryAfter } = refusal;
  logRefusal(c, refusal);
  if (status === 500) {
    const fields = { path: c.req.path, reason: errorMessage(error) };
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

/** Pages on which a visitor has no rights. */
const isDoor = /^\/(?:sign-in|sign-out|callback)(?:\/|$)/;

/** A query to be tested is the largest value of a form. */
const FORM_BYTES = 256 * 1024;

interface OpenPage {
  readonly response: ServerResponse;
  session?: CurrentSession;
}

type OpenPages = Map<ConsoleEnv["Bindings"]["incoming"], OpenPage>;

function createApp(console: Console, open: OpenPages): Hono<ConsoleEnv> {
  const app = new Hono<ConsoleEnv>({ strict: true });
  app.use(async (c, next) => {
    for (const name of keysOf(console)) c.set(name, console[name]);
    await next();
    c.header("Cache-Control", "no-store");
  });
  app.use(headers, knownHost, ownPages);
  app.use(async (c, next) => {
    // PostgreSQL has no such text, so the store would seem to be unreachable.
    if (c.req.url.includes("%00")) throw new Refusal("not_found");
    await next();
  });
  app.use((c, next) => inZone(zoneCookie.read(c), next));
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
    const session = secret && (await c.var.sessions.use(secret, isRefresh));
    if (session) {
      c.set("session", session);
      // Signing in and out must work while the provider does not answer.
      if (!isDoor.test(c.req.path)) c.set("session", await c.var.sessions.addSignIn(session));
      const answer = open.get(c.env.incoming);
      if (answer !== undefined && c.var.session) answer.session = c.var.session;
    }
    await next();
  });
  app.post("*", ownForms, async (c, next) => {
    const { session, guard, gateway } = c.var;
    const isSigningIn = c.req.path === "/sign-in";
    if (isSigningIn && !gateway.configuration.auth.passwords) throw new Refusal("not_found");
    const form = await readForm(c.env.incoming, FORM_BYTES);
    if (form.values().some((value) => value.includes("\0"))) throw new Refusal("bad_request");
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
  app.get("/sign-in/:prefix", startSignIn);
  app.get("/callback/:prefix", finishSignIn);
  app.use(async (c, next) => (c.var.session === undefined ? redirectToSignIn(c) : next()));
  app.use(readNotice);
  app.post("/sign-out", postSignOut);
  app.get("/", (c) => c.redirect("/overview", 303));
  app.get("/overview", showOverview);
  app.get("/search", showSearch);
  app.get("/state", showState);
  app.get("/access", showAccess);
  app.get("/access/groups", showAccess);
  app.get("/access/user", showUser);
  app.get("/access/table", showTable);
  for (const [path, form] of Object.entries(accessForms)) addForm(app, path, form);
  app.get("/approvals", showApprovals);
  app.get("/approvals/:id", (c) => showApproval(c));
  app.post("/approvals/:id", decideApproval);
  app.get("/audit", showAudit);
  app.get("/audit.csv", exportAudit);
  app.get("/sessions", showSessions);
  app.post("/sessions/end", endSession);
  app.post("/sessions/revoke", revokeToken);
  addForm(app, "/sessions/password", changePassword);
  addForm(app, "/sessions/zone", chooseZone);
  app.post("/sessions/disconnect", endApplication);
  app.post("/sessions/end-all", endAll);
  return app;
}

/** Replicas share sessions and the secret of forms: each can continue what another has begun. */
async function openSharedSessions({ gateway, features }: OpenedListener) {
  const { access, revocations } = gateway;
  const { store, signIns } = features;
  const context = { access, revocations, signIns };
  if (store === undefined) {
    return { sessions: openSessions(context), guard: createFormGuard(randomBytes(32)) };
  }
  const { sessionsInStore } = await import("./store-sessions.ts");
  const shared = sessionsInStore(store.store.database, store.replica);
  const secret = await store.authorization.store.secret("console forms", randomBytes(32));
  return { sessions: openSessions(context, undefined, shared), guard: createFormGuard(secret) };
}

export const openConsole: OpenConsole = async (front, loaded, opened) => {
  const { gateway, listener, features } = front;
  const { store, approvals, issuers, signIns } = features;
  const { console, server, store: settings } = gateway.configuration;
  const listen = console.listen && parseListenAddress(console.listen);
  if (!listen) return undefined;
  const open: OpenPages = new Map();
  const { sessions, guard } = await openSharedSessions(front);
  const app = createApp(
    {
      gateway,
      listener,
      store,
      approvals,
      issuers,
      signIns,
      sessions,
      guard,
      countSignIn: addressLimit(gateway.shared.countRequests, "console sign-ins", 60, 60),
      history: openHistory(gateway.access, settings.access === "store" ? store : undefined),
      applications: hasEmbeddedServer(gateway.configuration)
        ? (await openState(store?.authorization, loaded.serviceDirectory, opened)).store
        : undefined,
      suggestNames: nameSuggestions(gateway),
    },
    open,
  );
  const timeout = server.request_timeout * 1000;
  const http = createServer(
    { requestTimeout: timeout, headersTimeout: timeout },
    // By default the library replaces Node's global Request and Response.
    getRequestListener(app.fetch, { overrideGlobalObjects: false }),
  );
  limitConnections(http, gateway.log, true);
  http.prependListener("request", (request, response) => {
    resolveTarget(request);
    open.set(request, { response });
    response.once("close", () => open.delete(request));
  });
  const limits = limitAnswers(
    () => open.values(),
    ({ response, session }) => {
      const isLost = session !== undefined && !sessions.isGood(session);
      if (isLost && response.headersSent) response.destroy();
    },
  );
  http.listen(listen);
  await once(http, "listening");
  opened.defer(async () => {
    const closed = once(http, "close");
    http.close();
    http.closeAllConnections();
    await closed;
    clearInterval(limits);
  });
  const address = http.address();
  const port = address !== null && typeof address === "object" ? address.port : listen.port;
  const host = listen.host.includes(":") ? `[${listen.host}]` : listen.host;
  return console.public_url || `http://${host}:${port}`;
};
