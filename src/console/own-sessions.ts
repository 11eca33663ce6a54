import { requireSelfOrAdministrator } from "../access/administration-rights.ts";
import { isExternalUsername } from "../access/identifiers.ts";
import { type Connection, connectionsOf, isConnected } from "../oauth/server/connections.ts";
import { describeClient } from "../oauth/server/interaction-context.ts";
import { lifetimes } from "../oauth/server/protocol.ts";
import { Refusal } from "../refusal.ts";
import { type ApplicationRow, type SessionRow, sessionsPage } from "./pages/sessions.ts";
import type { Session } from "./sessions.ts";
import { type ConsoleRequest, sendPage, type Visitor, visitorOf } from "./visit.ts";

/** Sessions, or apps, that a page shows. */
const SHOWN = 200;

/** The apps that users, or one of them, have let in and that have access. */
async function connectedTo(c: ConsoleRequest, username: string | undefined): Promise<Connection[]> {
  const { access, revocations, applications: store } = c.var.options;
  if (store === undefined) return [];
  const context = { snapshot: () => access.snapshot, revocations };
  return (await connectionsOf(store, username)).filter((one) => isConnected(context, one));
}

function applicationRow(c: ConsoleRequest, one: Connection): ApplicationRow {
  return {
    ...one,
    ...describeClient(c.var.options, one.clientId, one.appName),
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

/** Whose sessions a visitor is shown: an administrator everybody's, everybody else their own. */
function whose({ isAdministrator, actor }: Visitor, asked: string | undefined): string | undefined {
  if (!isAdministrator) return actor.username;
  return asked === "" ? undefined : asked;
}

/** `GET /sessions`: who is signed in, and which apps have access. */
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
    hasApplications: c.var.options.applications !== undefined,
  });
  return sendPage(c, visitor, page);
}

/** `POST /sessions/end`: one session of the console is over. */
export async function endSession(c: ConsoleRequest): Promise<Response> {
  const { snapshot, actor } = visitorOf(c);
  const id = c.var.form.get("session");
  const all = await c.var.sessions.list();
  const session = all.find(({ tokenId }) => tokenId === id);
  if (session !== undefined) {
    requireSelfOrAdministrator(snapshot, actor, session.username);
    await c.var.sessions.end(session.tokenId);
    const change = { change: "session ended", user: session.username };
    c.var.options.noteChange(actor.username, change);
  }
  return c.redirect("/sessions", 303);
}

/** `POST /sessions/disconnect`: an app has no access any more. */
export async function endApplication(c: ConsoleRequest): Promise<Response> {
  const { snapshot, actor } = visitorOf(c);
  const id = c.var.form.get("grant");
  const all = await connectedTo(c, undefined);
  const found = all.find(({ grantId }) => grantId === id);
  if (found !== undefined) {
    requireSelfOrAdministrator(snapshot, actor, found.username);
    await c.var.options.applications?.endGrant(found.grantId);
    const { username: user, clientId: client } = found;
    c.var.options.noteChange(actor.username, { change: "application ended", user, client });
  }
  return c.redirect("/sessions", 303);
}

/** `POST /sessions/end-all`: every token, app and session that a user has by now is over. */
export async function endAll(c: ConsoleRequest): Promise<Response> {
  const { snapshot, actor } = visitorOf(c);
  const username = c.var.form.get("user") ?? "";
  requireSelfOrAdministrator(snapshot, actor, username);
  const isKnown = snapshot.users.has(username) || isExternalUsername(username);
  if (!isKnown) throw new Refusal("user_not_found");
  await c.var.options.revocations.revokeUser(username);
  const change = { change: "tokens revoked", user: username };
  c.var.options.noteChange(actor.username, change);
  return c.redirect("/sessions", 303);
}
