import { requireSelfOrAdministrator } from "../../core/access/administration.ts";
import { accountActions } from "../../core/administration/actions.ts";
import { type Html, html, type Part } from "../../core/base/html.ts";
import { Refusal } from "../../core/base/refusal.ts";
import { revokeAllTokens } from "../../core/http/administration.ts";
import { type Connection, isConnected, listConnections } from "../oauth/server/connections.ts";
import { clientIdentity, describeClient, permission } from "../oauth/server/pages.ts";
import { lifetimes } from "../oauth/server/protocol.ts";
import { newPassword, readNewHash } from "./access.ts";
import { type ConsoleForm, changeAsVisitor, noteChange, requireConfirmation } from "./changes.ts";
import {
  type Column,
  Failure,
  field,
  hidden,
  hint,
  linkButton,
  ownPassword,
  postForm,
  required,
  table,
  unseen,
} from "./frame.ts";
import { formatDate, knownZone, localTime, offsetName, zoneInUse, zones } from "./moment.ts";
import { notify } from "./notice.ts";
import type { Session } from "./sessions.ts";
import { safeNext, startSession } from "./sign-in.ts";
import { tokenSection } from "./tokens.ts";
import { type ConsoleRequest, sendPage, visitorOf, zoneCookie } from "./visit.ts";

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
  return userAgent || "unknown browser";
}

const SHOWN = 200;

async function connectedTo(c: ConsoleRequest, username?: string): Promise<Connection[]> {
  const { gateway, applications: store } = c.var;
  if (store === undefined) return [];
  return (await listConnections(store, username)).filter((one) => isConnected(gateway, one));
}

function button(csrf: string, path: string, field: Html, label: string, what: Part): Html {
  const content = html`${field}<button class="small">${label}${unseen(what)}</button>`;
  return postForm(csrf, `/sessions/${path}`, "", content);
}

function moments(...names: string[]): Column[] {
  return names.map((name) => [name, "moment"]);
}

function sessionTable(c: ConsoleRequest, list: readonly Session[]): Html {
  const { sessions } = c.var;
  const { csrf, session: own } = visitorOf(c);
  const rows = list.map((one) => {
    const { username, address, userAgent, tokenId, startedAt, usedAt } = one;
    const since = formatDate(sessions.epochOf(startedAt));
    const what = html` the session of ${username} from ${address} since ${since}`;
    return [
      html`<bdi>${username}</bdi>${tokenId === own.tokenId && html` <strong>(this one)</strong>`}`,
      html`<bdi>${address}</bdi>${hint(html`<bdi>${browserNamed(userAgent)}</bdi>`)}`,
      since,
      formatDate(sessions.epochOf(usedAt)),
      `in ${Math.ceil(sessions.msLeft(one) / 60_000)} min`,
      button(csrf, "end", hidden("session", tokenId), "End", what),
    ];
  });
  return table(
    "Console sessions",
    ["User", "Browser", ...moments("Since", "Last used", "Expires"), "Action"],
    rows,
    "No sessions.",
  );
}

function applicationTable(c: ConsoleRequest, list: readonly Connection[]): Html {
  const { mcp } = c.var.gateway.configuration;
  const { csrf } = visitorOf(c);
  const rows = list.map((one) => {
    const { username, grantId, allowedAt, renewedAt, called } = one;
    const client = describeClient(mcp, one.clientId, one.appName);
    const what = ` ${client.name} of ${username}`;
    const tools = called.length === 0 ? "none" : html`<bdi>${called.join(", ")}</bdi>`;
    return [
      html`<bdi>${username}</bdi>`,
      html`<strong><bdi>${client.name}</bdi></strong>${hint(clientIdentity(client))}`,
      html`${permission(one)}${hint("Tools called: ", tools)}`,
      formatDate(allowedAt),
      renewedAt === undefined ? "never" : formatDate(renewedAt),
      formatDate(allowedAt + lifetimes.grant),
      button(csrf, "disconnect", hidden("grant", grantId), "Disconnect", what),
    ];
  });
  const isExternal = c.var.applications === undefined;
  return table(
    "Connected applications",
    ["User", "App", "May", ...moments("Allowed", "Last renewed", "Expires"), "Action"],
    rows,
    isExternal
      ? "An external authorization server admits apps. Disconnect them there."
      : "No connected apps. An app appears here after a user has allowed it.",
  );
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
${field({ fields: new Map([["user", username ?? ""]]) }, { name: "user", label: "User", more: html` maxlength="128"` })}
<button>Show</button>
</form>`;
  const ended = username ?? reader;
  return sendPage(c, {
    title: "Sessions",
    section: "Sessions",
    actions: hasPassword(c) && linkButton("Change your password", "/sessions/password"),
    content: html`${isAdministrator && filter}
<h2>Console sessions</h2>
${sessionTable(c, sessions.slice(0, SHOWN))}
<h2>Connected applications</h2>
${applicationTable(c, connections.slice(0, SHOWN))}
${more > 0 && html`<p class="quiet">${more} more are not shown. Filter by user to see them.</p>`}
${await tokenSection(c, username, "sessions")}
<p class="quiet">Tokens of logins are not stored, so they are not listed. <strong>End everything</strong> revokes them too.</p>
<details class="sheet narrow"><summary>End everything of <bdi>${ended}</bdi></summary>
<p>Revokes all tokens, apps and sessions of <bdi>${ended}</bdi>. Passwords and grants stay.</p>
${postForm(csrf, "/sessions/end-all", "", html`${hidden("user", ended)}<button class="danger">End everything now</button>`)}</details>`,
  });
}

function hasPassword({ var: { gateway, session } }: ConsoleRequest): boolean {
  return gateway.configuration.auth.passwords && session?.signIn === undefined;
}

export const changePassword: ConsoleForm = {
  start: () => new Map(),
  require(c) {
    if (!hasPassword(c)) throw new Refusal("not_found");
  },
  send(c, state) {
    const form = html`${ownPassword(state)}
${newPassword(state, "New password", "Keep it to yourself.")}
<div class="actions"><button class="primary">Change password</button> ${linkButton("Cancel", "/sessions")}</div>`;
    return sendPage(c, {
      title: "Change your password",
      section: "Sessions",
      path: html`<a href="/sessions">Sessions</a>`,
      failure: state.failure,
      content: html`<p>Ends all your tokens, apps and other sessions.</p>
${postForm(visitorOf(c).csrf, "/sessions/password", "sheet narrow", form)}`,
    });
  },
  async submit(c) {
    const { actor } = visitorOf(c);
    const { username } = actor;
    await requireConfirmation(c);
    const passwordHash = await readNewHash(c);
    const { users } = await changeAsVisitor(c, (current) =>
      accountActions.password.plan(current, actor, { username, passwordHash }),
    );
    const user = users.get(username);
    if (user !== undefined) await startSession(c, user);
    notify(c, "Your password is changed. All your other sessions, apps and tokens have ended.");
    return "/sessions";
  },
};

export async function endSession(c: ConsoleRequest): Promise<Response> {
  const { snapshot, actor } = visitorOf(c);
  const { sessions, form } = c.var;
  const session = (await sessions.list()).find(({ tokenId }) => tokenId === form.get("session"));
  if (session !== undefined) {
    requireSelfOrAdministrator(snapshot, actor, session.username);
    await sessions.end(session);
    noteChange(c, { change: "session ended", user: session.username });
    notify(c, `Ended a session of ${session.username}.`);
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
    notify(c, `Disconnected an app of ${user}: ${client}.`);
  }
  return c.redirect("/sessions", 303);
}

export async function endAll(c: ConsoleRequest): Promise<Response> {
  const { actor } = visitorOf(c);
  const username = c.var.form.get("user") ?? "";
  noteChange(c, await revokeAllTokens(c.var.gateway, actor, username));
  notify(c, `Ended all tokens, apps and sessions of ${username}.`);
  return c.redirect("/sessions", 303);
}

/** The page that led here, if it is one of the console. */
function pageBefore(c: ConsoleRequest): string {
  const from = URL.parse(c.req.header("referer") ?? "");
  return safeNext(from?.origin === c.var.arrival.origin ? from.pathname + from.search : "/");
}

/** The server cannot know the browser's zone without a script. */
export const chooseZone: ConsoleForm = {
  start: (c) => new Map(Object.entries({ next: pageBefore(c), zone: zoneInUse() })),
  require() {},
  send(c, state) {
    const next = state.fields.get("next") ?? "/";
    const now = Date.now();
    const form = html`${hidden("next", next)}
${field(state, { name: "zone", label: "Time zone", hint: "Such as Europe/Berlin or UTC", offered: zones, more: required })}
<div class="actions"><button class="primary">Use this zone</button> ${linkButton("Cancel", next)}</div>`;
    return sendPage(c, {
      title: "Time zone",
      failure: state.failure,
      content: html`<p>Pages show times in this zone, and in UTC when you point at them. It is now ${localTime(now).slice(0, 16)} in ${zoneInUse()} (${offsetName(now)}). This browser keeps your choice.</p>
${postForm(visitorOf(c).csrf, "/sessions/zone", "sheet narrow", form)}`,
    });
  },
  async submit(c, given) {
    const name = (given.get("zone") ?? "").trim();
    const zone = knownZone(name);
    if (zone === undefined) {
      const fields = new Map([["zone", "Choose a zone from the list, such as Europe/Berlin"]]);
      throw new Failure(400, `There is no time zone ${name}`, { fields });
    }
    zoneCookie.keep(c, zone);
    return safeNext(given.get("next"));
  },
};
