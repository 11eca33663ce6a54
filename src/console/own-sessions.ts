import { requireSelfOrAdministrator } from "../access/administration.ts";
import { revokeTokensOf } from "../gateway/administration.ts";
import { type Connection, connectionsOf, isConnected } from "../oauth/server/connections.ts";
import { describeClient } from "../oauth/server/login.ts";
import { identityOf, type KnownClient, permission } from "../oauth/server/pages/page.ts";
import { lifetimes } from "../oauth/server/protocol.ts";
import { dateOf, type Html, html, nothing } from "../pages/html.ts";
import { noteChange } from "./changes.ts";
import { type ConsolePage, heading, hidden, table } from "./frame.ts";
import type { Session } from "./sessions.ts";
import { type ConsoleRequest, sendPage, type Visitor, visitorOf } from "./visit.ts";

/** Times in epoch seconds. */
interface SessionRow {
  readonly tokenId: string;
  readonly username: string;
  readonly address: string;
  readonly userAgent: string;
  readonly started: number;
  readonly used: number;
  /** Until the session expires if unused. */
  readonly minutesLeft: number;
  readonly isThis: boolean;
}

/** An app that a user has authorized. */
interface ApplicationRow extends Connection, KnownClient {
  /** Epoch seconds at which the user has to consent again. */
  readonly endsAt: number;
}

interface SessionsView {
  readonly csrf: string;
  readonly reader: string;
  readonly isAdministrator: boolean;
  readonly username: string | undefined;
  readonly sessions: readonly SessionRow[];
  readonly applications: readonly ApplicationRow[];
  readonly more: number;
  /** False if another server authorizes apps. */
  readonly hasApplications: boolean;
}

function button(csrf: string, action: string, field: [string, string], label: Html): Html {
  return html`<form method="post" action="${action}">${hidden("csrf", csrf)}${hidden(...field)}<button class="small">${label}</button></form>`;
}

/** Text for screen readers only. */
function unseen(text: string | Html): Html {
  return html`<span class="unseen">${text}</span>`;
}

function sessionTable({ csrf, sessions }: SessionsView): Html {
  const rows = sessions.map((one) => [
    html`<bdi>${one.username}</bdi>${one.isThis ? html` <strong>(this one)</strong>` : nothing}`,
    html`<bdi>${one.address}</bdi><span class="hint"><bdi>${browserNamed(one.userAgent)}</bdi></span>`,
    dateOf(one.started),
    dateOf(one.used),
    `in ${one.minutesLeft} min`,
    button(
      csrf,
      "/sessions/end",
      ["session", one.tokenId],
      html`End${unseen(html` the session of ${one.username} from ${one.address} since ${dateOf(one.started)}`)}`,
    ),
  ]);
  return table(
    "Sessions of the console",
    ["User", "Browser", ["Since", "moment"], ["Last used", "moment"], ["Ends", "moment"], "Action"],
    rows,
  );
}

function called(names: readonly string[]): Html {
  return names.length === 0 ? html`no tool yet` : html`<bdi>${names.join(", ")}</bdi>`;
}

function applicationTable({ csrf, applications }: SessionsView): Html {
  const rows = applications.map((one) => [
    html`<bdi>${one.username}</bdi>`,
    html`<strong><bdi>${one.name}</bdi></strong><span class="hint">${identityOf(one)}</span>`,
    html`${permission(one)}<span class="hint">It has called ${called(one.called)}.</span>`,
    dateOf(one.allowedAt),
    one.renewedAt === undefined ? "never" : dateOf(one.renewedAt),
    dateOf(one.endsAt),
    button(
      csrf,
      "/sessions/disconnect",
      ["grant", one.grantId],
      html`Disconnect${unseen(html` ${one.name} of ${one.username}`)}`,
    ),
  ]);
  return table(
    "Connected applications",
    [
      "User",
      "App",
      "May",
      ["Allowed", "moment"],
      ["Last renewed", "moment"],
      ["Ends", "moment"],
      "Action",
    ],
    rows,
  );
}

function filter({ username }: SessionsView): Html {
  return html`<form method="get" action="/sessions" class="tools" role="search">
<div class="field"><label for="user">Only those of this user</label>
<input id="user" name="user" value="${username ?? ""}" maxlength="128" autocapitalize="none" spellcheck="false"></div>
<button>Show</button>
</form>`;
}

function endEverything({ csrf, reader, username = reader }: SessionsView): Html {
  const whose = username === reader ? html`you have` : html`<bdi>${username}</bdi> has`;
  return html`<details class="sheet narrow"><summary>End everything of <bdi>${username}</bdi></summary>
<p>Ends every token, every app and every session that ${whose} by now, machines among them. Passwords and grants stay.</p>
<form method="post" action="/sessions/end-all">${hidden("csrf", csrf)}${hidden("user", username)}
<button class="danger">End everything now</button></form></details>`;
}

function applicationSection(view: SessionsView): Html {
  const { applications, hasApplications } = view;
  if (!hasApplications) {
    return html`<p class="sheet empty">Apps are let in by another authorization server: end them there.</p>`;
  }
  if (applications.length > 0) return applicationTable(view);
  return html`<p class="sheet empty">No app is connected. One appears here once somebody has let it in.</p>`;
}

function sessionsPage(view: SessionsView): ConsolePage {
  const { isAdministrator, sessions, more } = view;
  return {
    title: "Sessions",
    place: "sessions",
    content: html`${heading("Sessions")}
${isAdministrator ? filter(view) : nothing}
<h2>Signed in to this console</h2>
${sessions.length === 0 ? html`<p class="sheet empty">Nobody of that name is signed in.</p>` : sessionTable(view)}
<h2>Connected applications</h2>
${applicationSection(view)}
${more === 0 ? nothing : html`<p class="quiet">${String(more)} more are not shown: ask for those of one user.</p>`}
<p class="quiet">Tokens of logins and machines are not listed, since nothing is kept of them; they end with everything.</p>
${endEverything(view)}`,
  };
}

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

/** The common name of a browser; an unknown User-Agent is shown as it is. */
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

/** The apps with access, authorized by one user or by any. */
async function connectedTo(c: ConsoleRequest, username: string | undefined): Promise<Connection[]> {
  const { gateway, applications: store } = c.var;
  if (store === undefined) return [];
  const { access, revocations } = gateway;
  const context = { snapshot: () => access.snapshot, revocations };
  return (await connectionsOf(store, username)).filter((one) => isConnected(context, one));
}

function applicationRow(c: ConsoleRequest, one: Connection): ApplicationRow {
  return {
    ...one,
    ...describeClient(c.var.gateway.configuration.mcp, one.clientId, one.appName),
    endsAt: one.allowedAt + lifetimes.grant,
  };
}

function sessionRow(c: ConsoleRequest, session: Session, own: Session): SessionRow {
  const { sessions } = c.var;
  const { startedAt, usedAt } = session;
  return {
    ...session,
    started: sessions.epochOf(startedAt),
    used: sessions.epochOf(usedAt),
    minutesLeft: Math.ceil(sessions.msLeft(session) / 60_000),
    isThis: session.tokenId === own.tokenId,
  };
}

/** Administrators may ask for any user or for all; other visitors see only their own sessions. */
function whose({ isAdministrator, actor }: Visitor, asked: string | undefined): string | undefined {
  if (!isAdministrator) return actor.username;
  return asked === "" ? undefined : asked;
}

export async function showSessions(c: ConsoleRequest): Promise<Response> {
  const visitor = visitorOf(c);
  const username = whose(visitor, c.req.query("user"));
  const sessions = await c.var.sessions.list(username);
  const connections = await connectedTo(c, username);
  const page = sessionsPage({
    csrf: visitor.csrf,
    reader: visitor.actor.username,
    isAdministrator: visitor.isAdministrator,
    username,
    sessions: sessions.slice(0, SHOWN).map((one) => sessionRow(c, one, visitor.session)),
    applications: connections.slice(0, SHOWN).map((one) => applicationRow(c, one)),
    more: Math.max(0, sessions.length - SHOWN) + Math.max(0, connections.length - SHOWN),
    hasApplications: c.var.applications !== undefined,
  });
  return sendPage(c, visitor, page);
}

export async function endSession(c: ConsoleRequest): Promise<Response> {
  const { snapshot, actor } = visitorOf(c);
  const id = c.var.form.get("session");
  const all = await c.var.sessions.list();
  const session = all.find(({ tokenId }) => tokenId === id);
  if (session !== undefined) {
    requireSelfOrAdministrator(snapshot, actor, session.username);
    await c.var.sessions.end(session.tokenId);
    const change = { change: "session ended", user: session.username };
    noteChange(c, change);
  }
  return c.redirect("/sessions", 303);
}

export async function endApplication(c: ConsoleRequest): Promise<Response> {
  const { snapshot, actor } = visitorOf(c);
  const id = c.var.form.get("grant");
  const all = await connectedTo(c, undefined);
  const found = all.find(({ grantId }) => grantId === id);
  if (found !== undefined) {
    requireSelfOrAdministrator(snapshot, actor, found.username);
    await c.var.applications?.endGrant(found.grantId);
    const { username: user, clientId: client } = found;
    noteChange(c, { change: "application ended", user, client });
  }
  return c.redirect("/sessions", 303);
}

/** `POST /sessions/end-all`: ends every current token, app and session of a user. */
export async function endAll(c: ConsoleRequest): Promise<Response> {
  const { actor } = visitorOf(c);
  const username = c.var.form.get("user") ?? "";
  noteChange(c, await revokeTokensOf(c.var.gateway, actor, username));
  return c.redirect("/sessions", 303);
}
