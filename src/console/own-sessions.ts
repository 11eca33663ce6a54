import { requireSelfOrAdministrator } from "../access/administration.ts";
import { revokeTokensOf } from "../gateway/administration.ts";
import { type Connection, connectionsOf, isConnected } from "../oauth/server/connections.ts";
import { describeClient, identityOf, permission } from "../oauth/server/pages.ts";
import { lifetimes } from "../oauth/server/protocol.ts";
import { dateOf, type Html, html } from "../pages/html.ts";
import { noteChange } from "./changes.ts";
import { empty, field, heading, hidden, hint, table, unseen } from "./frame.ts";
import type { Session } from "./sessions.ts";
import { type ConsoleRequest, sendPage, visitorOf } from "./visit.ts";

/** Browsers by User-Agent, in this order: each one also claims to be those after it. */
const browsers = [
  [/\bEdg(?:A|iOS)?\/(\d+)/, "Edge"],
  [/\bOPR\/(\d+)/, "Opera"],
  [/\b(?:Firefox|FxiOS)\/(\d+)/, "Firefox"],
  [/\b(?:HeadlessChrome|Chrome|CriOS)\/(\d+)/, "Chrome"],
  [/\bVersion\/(\d+)[\d.]* (?:Mobile\/\w+ )?Safari\//, "Safari"],
] as const;

const systems = [
  [/\bAndroid\b/, "Android"],
  [/\b(?:iPhone|iPad)\b/, "iOS"],
  [/\bMac OS X\b/, "macOS"],
  [/\bWindows\b/, "Windows"],
  [/\bLinux\b/, "Linux"],
] as const;

export function browserNamed(userAgent: string): string {
  for (const [pattern, name] of browsers) {
    const version = pattern.exec(userAgent)?.[1];
    if (version === undefined) continue;
    const [, system] = systems.find(([sign]) => sign.test(userAgent)) ?? [];
    return system === undefined ? `${name} ${version}` : `${name} ${version} on ${system}`;
  }
  return userAgent || "a browser that does not say what it is";
}

const SHOWN = 200;

async function connectedTo(c: ConsoleRequest, username?: string): Promise<Connection[]> {
  const { gateway, applications: store } = c.var;
  if (store === undefined) return [];
  const { access, revocations } = gateway;
  const context = { snapshot: () => access.snapshot, revocations };
  return (await connectionsOf(store, username)).filter((one) => isConnected(context, one));
}

function button(csrf: string, path: string, field: Html, label: string, what: string): Html {
  return html`<form method="post" action="/sessions/${path}">${hidden("csrf", csrf)}${field}<button class="small">${label}${unseen(what)}</button></form>`;
}

function sessionTable(c: ConsoleRequest, list: readonly Session[]): Html {
  const { sessions } = c.var;
  const { csrf, session: own } = visitorOf(c);
  const rows = list.map((one) => {
    const { username, address, userAgent, tokenId, startedAt, usedAt } = one;
    const since = dateOf(sessions.epochOf(startedAt));
    const what = ` the session of ${username} from ${address} since ${since}`;
    return [
      html`<bdi>${username}</bdi>${tokenId === own.tokenId && html` <strong>(this one)</strong>`}`,
      html`<bdi>${address}</bdi>${hint(html`<bdi>${browserNamed(userAgent)}</bdi>`)}`,
      since,
      dateOf(sessions.epochOf(usedAt)),
      `in ${Math.ceil(sessions.msLeft(one) / 60_000)} min`,
      button(csrf, "end", hidden("session", tokenId), "End", what),
    ];
  });
  return table(
    "Sessions of the console",
    ["User", "Browser", ["Since", "moment"], ["Last used", "moment"], ["Ends", "moment"], "Action"],
    rows,
  );
}

function applicationTable(c: ConsoleRequest, list: readonly Connection[]): Html {
  const { mcp } = c.var.gateway.configuration;
  const { csrf } = visitorOf(c);
  const rows = list.map((one) => {
    const { username, grantId, allowedAt, renewedAt, called } = one;
    const client = describeClient(mcp, one.clientId, one.appName);
    const what = ` ${client.name} of ${username}`;
    const tools = called.length === 0 ? "no tool yet" : html`<bdi>${called.join(", ")}</bdi>`;
    return [
      html`<bdi>${username}</bdi>`,
      html`<strong><bdi>${client.name}</bdi></strong>${hint(identityOf(client))}`,
      html`${permission(one)}${hint("It has called ", tools, ".")}`,
      dateOf(allowedAt),
      renewedAt === undefined ? "never" : dateOf(renewedAt),
      dateOf(allowedAt + lifetimes.grant),
      button(csrf, "disconnect", hidden("grant", grantId), "Disconnect", what),
    ];
  });
  const times = ["Allowed", "Last renewed", "Ends"].map((name) => [name, "moment"] as const);
  return table("Connected applications", ["User", "App", "May", ...times, "Action"], rows);
}

export async function showSessions(c: ConsoleRequest): Promise<Response> {
  const visitor = visitorOf(c);
  const { csrf, isAdministrator } = visitor;
  const reader = visitor.actor.username;
  // Administrators may ask for any user or for all; other visitors see only their own sessions.
  const username = isAdministrator ? c.req.query("user") || undefined : reader;
  const sessions = await c.var.sessions.list(username);
  const connections = await connectedTo(c, username);
  const more = Math.max(0, sessions.length - SHOWN) + Math.max(0, connections.length - SHOWN);
  const filter = html`<form method="get" action="/sessions" class="tools" role="search">
${field({ fields: new Map([["user", username ?? ""]]) }, { name: "user", label: "Only those of this user", more: html` maxlength="128"` })}
<button>Show</button>
</form>`;
  const applications =
    connections.length > 0
      ? applicationTable(c, connections.slice(0, SHOWN))
      : empty(
          c.var.applications === undefined
            ? "Apps are let in by another authorization server: end them there."
            : "No app is connected. One appears here once somebody has let it in.",
        );
  const ended = username ?? reader;
  return sendPage(c, {
    title: "Sessions",
    place: "Sessions",
    content: html`${heading("Sessions")}
${isAdministrator && filter}
<h2>Signed in to this console</h2>
${sessions.length > 0 ? sessionTable(c, sessions.slice(0, SHOWN)) : empty("Nobody of that name is signed in.")}
<h2>Connected applications</h2>
${applications}
${more > 0 && html`<p class="quiet">${more} more are not shown: ask for those of one user.</p>`}
<p class="quiet">Tokens of logins and machines are not listed, since nothing is kept of them; they end with everything.</p>
<details class="sheet narrow"><summary>End everything of <bdi>${ended}</bdi></summary>
<p>Ends every token, every app and every session that ${ended === reader ? "you have" : html`<bdi>${ended}</bdi> has`} by now, machines among them. Passwords and grants stay.</p>
<form method="post" action="/sessions/end-all">${hidden("csrf", csrf)}${hidden("user", ended)}
<button class="danger">End everything now</button></form></details>`,
  });
}

export async function endSession(c: ConsoleRequest): Promise<Response> {
  const { snapshot, actor } = visitorOf(c);
  const { sessions, form } = c.var;
  const session = (await sessions.list()).find(({ tokenId }) => tokenId === form.get("session"));
  if (session !== undefined) {
    requireSelfOrAdministrator(snapshot, actor, session.username);
    await sessions.end(session.tokenId);
    noteChange(c, { change: "session ended", user: session.username });
  }
  return c.redirect("/sessions", 303);
}

export async function endApplication(c: ConsoleRequest): Promise<Response> {
  const { snapshot, actor } = visitorOf(c);
  const { applications, form } = c.var;
  const found = (await connectedTo(c)).find(({ grantId }) => grantId === form.get("grant"));
  if (found !== undefined) {
    const { username: user, clientId: client } = found;
    requireSelfOrAdministrator(snapshot, actor, user);
    await applications?.endGrant(found.grantId);
    noteChange(c, { change: "application ended", user, client });
  }
  return c.redirect("/sessions", 303);
}

export async function endAll(c: ConsoleRequest): Promise<Response> {
  const { actor } = visitorOf(c);
  const username = c.var.form.get("user") ?? "";
  noteChange(c, await revokeTokensOf(c.var.gateway, actor, username));
  return c.redirect("/sessions", 303);
}
