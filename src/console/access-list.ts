import { isExternalUsername } from "../access/identifiers.ts";
import { manageableBy } from "../access/manageable.ts";
import { EVERY_DATABASE } from "../access/roles.ts";
import { firstNames, grantsOf, type Snapshot } from "../access/snapshot.ts";
import { entriesIn } from "../access/user-grants.ts";
import { runCooperatively } from "../cooperative-scheduling.ts";
import { Refusal } from "../refusal.ts";
import { visibleEntries } from "./changes.ts";
import { accessPage, userPage } from "./pages/access.ts";
import { type Console, type ConsoleRequest, sendPage, type Visitor, visitorOf } from "./visit.ts";

/** Users on one page. */
const PAGE = 50;

interface Asked {
  readonly user: string;
  readonly database: string;
  readonly after: string | undefined;
}

/** The names on a page, and one more if there is another page. */
async function namesOf({ snapshot, actor }: Visitor, { user, database, after }: Asked) {
  const { isManageable, isVisible } = manageableBy(snapshot, actor);
  const part = user.toLowerCase();
  const fits = (username: string): boolean => {
    const grants = grantsOf(snapshot, username);
    const reaches = database === "" || grants.has(database) || grants.has(EVERY_DATABASE);
    return reaches && username.toLowerCase().includes(part);
  };
  const known = await runCooperatively(
    firstNames(snapshot.users, PAGE + 1, after, (one) => isManageable(one) && fits(one.username)),
  );
  const external = await runCooperatively(
    firstNames(snapshot.grants, PAGE + 1, after, (grants) => {
      const [{ username } = { username: "" }] = entriesIn(grants);
      const isOther = !snapshot.users.has(username) && grants.keys().some(isVisible);
      return isOther && fits(username);
    }),
  );
  return [...known, ...external].sort().slice(0, PAGE + 1);
}

/** `GET /access`: users, and by which entry each may do what. */
export async function showAccess(console: Console, c: ConsoleRequest): Promise<Response> {
  const visitor = visitorOf(console, c);
  const { snapshot, actor } = visitor;
  const asked = {
    user: c.req.query("user") ?? "",
    database: c.req.query("database") ?? "",
    after: c.req.query("after"),
  };
  const names = await namesOf(visitor, asked);
  const shown = names.slice(0, PAGE);
  const page = accessPage({
    ...asked,
    users: shown.map((username) => {
      const entries = visibleEntries(snapshot, actor, username);
      const user = snapshot.users.get(username);
      return { username, user, entries: entries.filter((one) => isMeant(one.database, asked)) };
    }),
    next: names.length > PAGE ? shown.at(-1) : undefined,
    accessVersion: snapshot.version,
  });
  return sendPage(c, visitor, page);
}

function isMeant(database: string, asked: Asked): boolean {
  return asked.database === "" || database === asked.database || database === EVERY_DATABASE;
}

/** @throws Refusal `user_not_found` unless the visitor may manage the user */
export function requireManageable(
  snapshot: Snapshot,
  actor: Visitor["actor"],
  username: string,
): void {
  const { isManageable, isVisible } = manageableBy(snapshot, actor);
  const user = snapshot.users.get(username);
  const isKnown =
    user === undefined
      ? isExternalUsername(username) && grantsOf(snapshot, username).keys().some(isVisible)
      : isManageable(user);
  if (!isKnown) throw new Refusal("user_not_found");
}

/** `GET /access/user`: one user, with everything that can be changed of it. */
export function showUser(console: Console, c: ConsoleRequest): Response {
  const visitor = visitorOf(console, c);
  const { snapshot, actor, isAdministrator } = visitor;
  const username = c.req.query("user") ?? "";
  requireManageable(snapshot, actor, username);
  const page = userPage({
    username,
    user: snapshot.users.get(username),
    entries: visibleEntries(snapshot, actor, username),
    isAdministrator,
    now: Date.now(),
  });
  return sendPage(c, visitor, page);
}
