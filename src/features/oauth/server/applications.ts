import { randomBytes } from "node:crypto";
import { formatDate, type Html, html } from "../../../core/base/html.ts";
import { type Connection, findUser, isConnected, listConnections } from "./connections.ts";
import { readForm, seeOther } from "./http.ts";
import { checkLogin, requireOwnForm, sendLogin, sendPage } from "./interaction.ts";
import type { Visit } from "./options.ts";
import { calls, clientIdentity, describeClient, permission, renderPage } from "./pages.ts";
import { cookieFor, endpoints, lifetimes, sessionCookie } from "./protocol.ts";
import { takeSignIn } from "./sign-in.ts";

/** Binds forms to a browser until a user logs in. */
function browserCookie({ options }: Visit) {
  return cookieFor(options.issuer, "gatehouse_browser");
}

type Visitor = Awaited<ReturnType<typeof readVisitor>>;

async function readVisitor(visit: Visit) {
  const { provider, options, request, response } = visit;
  const context = provider.createContext(request, response);
  const session = await provider.Session.get(context);
  const { accountId = "", loginTs: issuedAt = 0 } = session;
  // Undefined without a valid login.
  const username = findUser(options, accountId, issuedAt)?.username;
  const { cookies } = context;
  const browser = cookies.get(browserCookie(visit).name) || randomBytes(32).toString("base64url");
  return { ...visit, cookies, browser, session, username };
}

function redirectToPage({ options, response }: Visitor): void {
  seeOther(response, options.issuer + endpoints.applications);
}

/** Forms are bound to the login, or to the browser before one. */
function boundFormName({ browser, session, username }: Visitor): string {
  return username === undefined ? `applications-login:${browser}` : `applications:${session.uid}`;
}

function showLogin(visitor: Visitor, failure?: Parameters<typeof sendLogin>[4]): void {
  const { cookies, browser, guard } = visitor;
  const cookie = browserCookie(visitor);
  cookies.set(cookie.name, browser, cookie.options);
  const csrf = guard.tokenFor(boundFormName(visitor));
  sendLogin(visitor, csrf, endpoints.applications, undefined, failure);
}

async function showApplications(visitor: Visitor, username: string): Promise<void> {
  const { options, store, guard, response } = visitor;
  const connections = await listConnections(store, username);
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
<input type="hidden" name="csrf" value="${guard.tokenFor(boundFormName(visitor))}">
${Array.from(byClient.values(), (connections) => application(options, connections))}
<p class="field quiet">Logged in as <strong>${username}</strong>.
<button class="link" name="action" value="logout">Log out</button></p>
</form>`,
  });
  sendPage(response, page);
}

/** @param connections of one client, newest first */
function application(options: Visit["options"], connections: readonly Connection[]): Html {
  const { clientId, appName } = connections[0] ?? { clientId: "", appName: "" };
  const client = describeClient(options.configuration.mcp, clientId, appName);
  const items = connections.map((one) => {
    const renewed = one.renewedAt && html`, last renewed ${formatDate(one.renewedAt)}`;
    const by = one.byProvider && html`, allowed by your identity provider`;
    return html`<li>${permission(one)}${by}, since ${formatDate(one.allowedAt)}${renewed}</li>`;
  });
  return html`<section class="app">
<h2><bdi>${client.name}</bdi></h2>
<p class="quiet">${clientIdentity(client)}. ${calls(new Set(connections.flatMap((one) => one.called)))}</p>
<p>It may:</p>
<ul>${items}</ul>
<div class="actions"><button name="disconnect" value="${clientId}">Disconnect <bdi>${client.name}</bdi></button></div>
</section>`;
}

async function finishLogin(visitor: Visitor, accountId: string): Promise<void> {
  const { provider, options, cookies, session: old } = visitor;
  if (old.accountId !== undefined) await old.destroy();
  const session = new provider.Session();
  session.loginAccount({ accountId, transient: true });
  await session.save(lifetimes.session);
  const cookie = sessionCookie(options.issuer);
  cookies.set(cookie.name, session.jti, cookie.options);
  return redirectToPage(visitor);
}

async function submit(visitor: Visitor): Promise<void> {
  const { options, store, request, session, username } = visitor;
  const form = await readForm(request);
  const action = form.get("action");
  // The login has ended since the page was created.
  if (username === undefined && action !== "login") return redirectToPage(visitor);
  requireOwnForm(visitor, boundFormName(visitor), form);
  if (username === undefined) {
    const account = await checkLogin(visitor, form);
    return typeof account === "string"
      ? finishLogin(visitor, account)
      : showLogin(visitor, account);
  }
  const client = form.get("disconnect");
  if (client !== undefined) {
    for (const { clientId, grantId } of await listConnections(store, username)) {
      if (clientId === client) await store.endGrant(grantId);
    }
    options.onEvent("oauth_revocation", { user: username, client, token: "all" });
  } else if (action === "logout") {
    await session.destroy();
    options.onEvent("oauth_logout", { user: username });
  }
  return redirectToPage(visitor);
}

export async function manageApplications(visit: Visit): Promise<void> {
  const visitor = await readVisitor(visit);
  if (visit.request.method === "POST") return submit(visitor);
  const accountId = await takeSignIn(visit);
  if (accountId !== undefined) return finishLogin(visitor, accountId);
  const { username } = visitor;
  return username === undefined ? showLogin(visitor) : showApplications(visitor, username);
}
