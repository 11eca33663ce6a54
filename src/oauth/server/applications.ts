import { randomBytes } from "node:crypto";
import type { IncomingMessage, ServerResponse } from "node:http";
import { dateOf, type Html, html, nothing } from "../../pages/html.ts";
import { type Connection, connectionsOf, findUser, isConnected } from "./connections.ts";
import { OAuthProblem, readForm, seeOther } from "./http.ts";
import {
  describeClient,
  type InteractionContext,
  judgeLogin,
  type LoginFailure,
  sendLogin,
  sendPage,
} from "./login.ts";
import { calls, identityOf, type KnownClient, permission, renderPage } from "./pages/page.ts";
import { endpoints, lifetimes, sessionCookie } from "./protocol.ts";

/** Binds forms to a browser until a user logs in. */
const BROWSER_COOKIE = "gatehouse_browser";
const browserCookie = { httpOnly: true, sameSite: "strict", path: endpoints.applications } as const;

type Context = ReturnType<InteractionContext["provider"]["createContext"]>;
type Session = Awaited<ReturnType<InteractionContext["provider"]["Session"]["get"]>>;

interface Visitor {
  readonly request: IncomingMessage;
  readonly response: ServerResponse;
  readonly cookies: Context["cookies"];
  /** Id of the browser. If it had no cookie, this is a new id for which no form exists yet. */
  readonly browser: string;
  readonly session: Session;
  /** Undefined without a login, or if the login is no longer valid. */
  readonly username: string | undefined;
}

async function meet(
  { provider, options }: InteractionContext,
  request: IncomingMessage,
  response: ServerResponse,
): Promise<Visitor> {
  const context = provider.createContext(request, response);
  const session = await provider.Session.get(context);
  const { accountId = "", loginTs: issuedAt = 0 } = session;
  const user = findUser(options, accountId, { tokenId: "", issuedAt });
  const { cookies } = context;
  const browser = cookies.get(BROWSER_COOKIE) || randomBytes(32).toString("base64url");
  return { request, response, cookies, browser, session, username: user?.username };
}

function goBack({ options }: InteractionContext, { response }: Visitor): void {
  seeOther(response, options.issuer + endpoints.applications);
}

/** Forms are bound to the login, or to the browser before one. */
function formNameOf({ browser, session, username }: Visitor): string {
  return username === undefined ? `applications-login:${browser}` : `applications:${session.uid}`;
}

function showLogin({ guard }: InteractionContext, visitor: Visitor, failure?: LoginFailure): void {
  visitor.cookies.set(BROWSER_COOKIE, visitor.browser, browserCookie);
  sendLogin(visitor.response, guard.tokenFor(formNameOf(visitor)), undefined, failure);
}

async function applicationsOf({ options, store }: InteractionContext, username: string) {
  const connections = await connectionsOf(store, username);
  const live = connections.filter((one) => isConnected(options, one));
  const byClient = Map.groupBy(live, ({ clientId }) => clientId);
  return Array.from(byClient, ([clientId, connections]): ApplicationView => {
    const { appName } = connections[0] ?? { appName: "" };
    const called = new Set(connections.flatMap((one) => one.called));
    return { ...describeClient(options, clientId, appName), clientId, connections, called };
  });
}

async function showApplications(
  context: InteractionContext,
  visitor: Visitor,
  username: string,
): Promise<void> {
  const csrf = context.guard.tokenFor(formNameOf(visitor));
  const applications = await applicationsOf(context, username);
  sendPage(visitor.response, applicationsPage({ csrf, username, applications }));
}

async function logIn(
  context: InteractionContext,
  visitor: Visitor,
  form: ReadonlyMap<string, string>,
): Promise<void> {
  const { provider } = context;
  const { request, cookies, session: old } = visitor;
  const accountId = await judgeLogin(context, request, form);
  if (typeof accountId !== "string") return showLogin(context, visitor, accountId);
  if (old.accountId !== undefined) await old.destroy();
  const session = new provider.Session();
  session.loginAccount({ accountId, amr: ["pwd"], transient: true });
  await session.save(lifetimes.session);
  cookies.set(provider.cookieName("session"), session.jti, sessionCookie);
  return goBack(context, visitor);
}

async function disconnect(
  { options, store }: InteractionContext,
  request: IncomingMessage,
  username: string,
  clientId: string,
): Promise<void> {
  for (const one of await connectionsOf(store, username)) {
    if (one.clientId === clientId) await store.endGrant(one.grantId);
  }
  const { address } = options.originOf(request);
  options.onEvent("oauth_revocation", { user: username, client: clientId, token: "all", address });
}

async function submit(context: InteractionContext, visitor: Visitor): Promise<void> {
  const { request, session, username } = visitor;
  const form = await readForm(request);
  const action = form.get("action");
  // The user who was logged in when the page was created no longer is.
  if (username === undefined && action !== "login") return goBack(context, visitor);
  if (!context.guard.isRight(formNameOf(visitor), form.get("csrf"))) {
    throw new OAuthProblem(403, "invalid_request", "the form was not sent from its own page");
  }
  if (username === undefined) return logIn(context, visitor, form);
  const clientId = form.get("disconnect");
  if (clientId !== undefined) await disconnect(context, request, username, clientId);
  else if (action === "logout") await session.destroy();
  return goBack(context, visitor);
}

/** Serves the page on which users review and disconnect their apps. */
export async function manageApplications(
  context: InteractionContext,
  request: IncomingMessage,
  response: ServerResponse,
): Promise<void> {
  const visitor = await meet(context, request, response);
  if (request.method === "POST") return submit(context, visitor);
  const { username } = visitor;
  if (username === undefined) return showLogin(context, visitor);
  return showApplications(context, visitor, username);
}

interface ApplicationView extends KnownClient {
  readonly clientId: string;
  readonly connections: readonly Connection[];
  readonly called: ReadonlySet<string>;
}

interface ApplicationsView {
  readonly csrf: string;
  readonly username: string;
  readonly applications: readonly ApplicationView[];
}

function connection(one: Connection): Html {
  const renewed =
    one.renewedAt === undefined ? nothing : html`, last renewed ${dateOf(one.renewedAt)}`;
  return html`<li>${permission(one)}, since ${dateOf(one.allowedAt)}${renewed}</li>`;
}

function application(view: ApplicationView): Html {
  const { clientId, name, connections, called } = view;
  return html`<section class="app">
<h2><bdi>${name}</bdi></h2>
<p class="quiet">${identityOf(view)}. ${calls(called)}</p>
<p>It may:</p>
<ul>${connections.map(connection)}</ul>
<div class="actions"><button name="disconnect" value="${clientId}">Disconnect <bdi>${name}</bdi></button></div>
</section>`;
}

function applicationsPage({ csrf, username, applications }: ApplicationsView): string {
  const list =
    applications.length === 0
      ? html`<p>No app is connected.</p>`
      : html`<p>These apps may use your databases in your name. To disconnect one ends its access at once.</p>`;
  return renderPage({
    title: "Connected applications",
    content: html`<h1>Your connected applications</h1>
${list}
<form method="post">
<input type="hidden" name="csrf" value="${csrf}">
${applications.map(application)}
<p class="field quiet">Logged in as <strong>${username}</strong>.
<button class="link" name="action" value="logout">Log out</button></p>
</form>`,
  });
}
