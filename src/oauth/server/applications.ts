import { randomBytes } from "node:crypto";
import type { IncomingMessage, ServerResponse } from "node:http";
import { dateOf, type Html, html, nothing } from "../../pages/html.ts";
import { type Connection, connectionsOf, findUser, isConnected } from "./connections.ts";
import { readForm, seeOther } from "./http.ts";
import {
  type InteractionContext,
  judgeLogin,
  type LoginFailure,
  requireOwnForm,
  sendLogin,
  sendPage,
} from "./interaction.ts";
import { calls, describeClient, identityOf, permission, renderPage } from "./pages.ts";
import { endpoints, lifetimes, sessionCookie } from "./protocol.ts";
import { takeSignIn } from "./sign-in.ts";

/** Binds forms to a browser until a user logs in. */
const BROWSER_COOKIE = "gatehouse_browser";
const browserCookie = { httpOnly: true, sameSite: "strict", path: endpoints.applications } as const;

type Visitor = Awaited<ReturnType<typeof readVisitor>>;

async function readVisitor(
  { provider, options }: InteractionContext,
  request: IncomingMessage,
  response: ServerResponse,
) {
  const context = provider.createContext(request, response);
  const session = await provider.Session.get(context);
  const { accountId = "", loginTs: issuedAt = 0 } = session;
  // Undefined without a valid login.
  const username = findUser(options, accountId, { tokenId: "", issuedAt })?.username;
  const { cookies } = context;
  const browser = cookies.get(BROWSER_COOKIE) || randomBytes(32).toString("base64url");
  return { request, response, cookies, browser, session, username };
}

function redirectToPage({ options }: InteractionContext, { response }: Visitor): void {
  seeOther(response, options.issuer + endpoints.applications);
}

/** Forms are bound to the login, or to the browser before one. */
function formNameOf({ browser, session, username }: Visitor): string {
  return username === undefined ? `applications-login:${browser}` : `applications:${session.uid}`;
}

function showLogin(context: InteractionContext, visitor: Visitor, failure?: LoginFailure): void {
  visitor.cookies.set(BROWSER_COOKIE, visitor.browser, browserCookie);
  const csrf = context.guard.tokenFor(formNameOf(visitor));
  sendLogin(context, visitor.response, csrf, endpoints.applications, undefined, failure);
}

async function showApplications(
  { options, store, guard }: InteractionContext,
  visitor: Visitor,
  username: string,
): Promise<void> {
  const connections = await connectionsOf(store, username);
  const live = connections.filter((one) => isConnected(options, one));
  const byClient = Map.groupBy(live, ({ clientId }) => clientId);
  const list =
    byClient.size === 0
      ? html`<p>No app is connected.</p>`
      : html`<p>These apps may use your databases in your name. Disconnecting an app ends its access at once.</p>`;
  const page = renderPage({
    title: "Connected applications",
    content: html`<h1>Your connected applications</h1>
${list}
<form method="post">
<input type="hidden" name="csrf" value="${guard.tokenFor(formNameOf(visitor))}">
${Array.from(byClient.values(), (connections) => application(options, connections))}
<p class="field quiet">Logged in as <strong>${username}</strong>.
<button class="link" name="action" value="logout">Log out</button></p>
</form>`,
  });
  sendPage(visitor.response, page);
}

/** @param connections of one client, newest first */
function application(
  options: InteractionContext["options"],
  connections: readonly Connection[],
): Html {
  const { clientId, appName } = connections[0] ?? { clientId: "", appName: "" };
  const client = describeClient(options, clientId, appName);
  const items = connections.map((one) => {
    const renewed = one.renewedAt ? html`, last renewed ${dateOf(one.renewedAt)}` : nothing;
    const by = one.byProvider ? html`, allowed by your identity provider` : nothing;
    return html`<li>${permission(one)}${by}, since ${dateOf(one.allowedAt)}${renewed}</li>`;
  });
  return html`<section class="app">
<h2><bdi>${client.name}</bdi></h2>
<p class="quiet">${identityOf(client)}. ${calls(new Set(connections.flatMap((one) => one.called)))}</p>
<p>It may:</p>
<ul>${items}</ul>
<div class="actions"><button name="disconnect" value="${clientId}">Disconnect <bdi>${client.name}</bdi></button></div>
</section>`;
}

async function logIn(
  context: InteractionContext,
  visitor: Visitor,
  form: ReadonlyMap<string, string>,
): Promise<void> {
  const accountId = await judgeLogin(context, visitor.request, form);
  if (typeof accountId !== "string") return showLogin(context, visitor, accountId);
  return finishLogin(context, visitor, accountId, "pwd");
}

async function finishLogin(
  context: InteractionContext,
  visitor: Visitor,
  accountId: string,
  method: string,
): Promise<void> {
  const { provider } = context;
  const { cookies, session: old } = visitor;
  if (old.accountId !== undefined) await old.destroy();
  const session = new provider.Session();
  session.loginAccount({ accountId, amr: [method], transient: true });
  await session.save(lifetimes.session);
  cookies.set(provider.cookieName("session"), session.jti, sessionCookie);
  return redirectToPage(context, visitor);
}

async function submit(context: InteractionContext, visitor: Visitor): Promise<void> {
  const { options, store } = context;
  const { request, session, username } = visitor;
  const form = await readForm(request);
  const action = form.get("action");
  // The login has ended since the page was created.
  if (username === undefined && action !== "login") return redirectToPage(context, visitor);
  requireOwnForm(context, formNameOf(visitor), form);
  if (username === undefined) return logIn(context, visitor, form);
  const client = form.get("disconnect");
  if (client !== undefined) {
    for (const { clientId, grantId } of await connectionsOf(store, username)) {
      if (clientId === client) await store.endGrant(grantId);
    }
    const { address } = options.originOf(request);
    options.onEvent("oauth_revocation", { user: username, client, token: "all", address });
  } else if (action === "logout") await session.destroy();
  return redirectToPage(context, visitor);
}

export async function manageApplications(
  context: InteractionContext,
  request: IncomingMessage,
  response: ServerResponse,
): Promise<void> {
  const visitor = await readVisitor(context, request, response);
  if (request.method === "POST") return submit(context, visitor);
  const accountId = await takeSignIn(context, request, response);
  if (accountId !== undefined) return finishLogin(context, visitor, accountId, "fed");
  const { username } = visitor;
  if (username === undefined) return showLogin(context, visitor);
  return showApplications(context, visitor, username);
}
