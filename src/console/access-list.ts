import { manageableBy } from "../access/administration-rights.ts";
import { decidingEntry } from "../access/deciding-entry.ts";
import { EVERY_DATABASE } from "../access/roles.ts";
import { firstNames, type Grant } from "../access/snapshot.ts";
import { entriesIn } from "../access/user-grants.ts";
import { runCooperatively } from "../cooperative-scheduling.ts";
import { Refusal } from "../refusal.ts";
import { type Failure, failureOf, requireManageable, visibleEntries } from "./changes.ts";
import type { Explanation } from "./options.ts";
import { accessPage, checkPage, userPage } from "./pages/access.ts";
import type { Fields } from "./pages/forms.ts";
import { type ConsoleRequest, sendPage, type Visitor, visitorOf } from "./visit.ts";

/** Users on one page. */
const PAGE = 50;

interface Asked {
  readonly user: string;
  /** Empty for every one. */
  readonly database: string;
  /** Undefined for all of the database. */
  readonly table: string | undefined;
  readonly after: string | undefined;
  /** Epoch milliseconds. */
  readonly now: number;
}

/** The entries of a user that are asked for: of one table the one that decides. */
function entriesAsked(
  { snapshot, actor }: Visitor,
  username: string,
  { database, table, now }: Asked,
): readonly Grant[] {
  const { isVisible } = manageableBy(snapshot, actor);
  if (table !== undefined) {
    const found = decidingEntry(snapshot, username, database, table, now);
    return found !== undefined && isVisible(found.grant.database) ? [found.grant] : [];
  }
  const entries = visibleEntries(snapshot, actor, username);
  if (database === "") return entries;
  return entries.filter((one) => [database, EVERY_DATABASE].includes(one.database));
}

/** The names on a page, and one more if there is another page. */
async function namesOf(visitor: Visitor, asked: Asked): Promise<string[]> {
  const { snapshot, actor } = visitor;
  const { user, database, after } = asked;
  const { isManageable, isVisible } = manageableBy(snapshot, actor);
  const part = user.toLowerCase();
  const fits = (username: string): boolean =>
    username.toLowerCase().includes(part) &&
    (database === "" || entriesAsked(visitor, username, asked).length > 0);
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
export async function showAccess(c: ConsoleRequest): Promise<Response> {
  const visitor = visitorOf(c);
  const { snapshot } = visitor;
  const at = (name: string) => (c.req.query(name) ?? "").trim();
  const [user, place] = [at("user"), at("place")];
  const [database = "", ...rest] = place.split(".");
  const table = rest.length === 0 ? undefined : rest.join(".");
  const after = c.req.query("after");
  const asked = { user, database, table, after, now: Date.now() };
  const names = await namesOf(visitor, asked);
  const shown = names.slice(0, PAGE);
  const page = accessPage({
    ...asked,
    place,
    users: shown.map((username) => ({
      username,
      user: snapshot.users.get(username),
      entries: entriesAsked(visitor, username, asked),
    })),
    next: names.length > PAGE ? shown.at(-1) : undefined,
    isLater: after !== undefined,
    accessVersion: snapshot.version,
  });
  return sendPage(c, visitor, page);
}

/** `GET /access/user`: one user, with everything that can be changed of it. */
export function showUser(c: ConsoleRequest): Response {
  const visitor = visitorOf(c);
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

function show(
  c: ConsoleRequest,
  fields: Fields,
  result: { explanation?: Explanation; failure?: Failure },
): Response {
  const visitor = visitorOf(c);
  manageableBy(visitor.snapshot, visitor.actor);
  const page = checkPage({ fields, csrf: visitor.csrf, ...result });
  return sendPage(c, visitor, page, result.failure?.status);
}

/** `GET /access/check`: the form for a question. */
export function showCheck(c: ConsoleRequest): Response {
  return show(c, new Map([["user", c.req.query("user") ?? ""]]), {});
}

/** `POST /access/check`: would this query pass, for whom, by which entry, and as which bytes. */
export function check(c: ConsoleRequest): Response {
  const { form } = c.var;
  try {
    return show(c, form, { explanation: explain(c) });
  } catch (error) {
    return show(c, form, { failure: failureOf(error) });
  }
}

/** @throws Refusal for a user or a database that is beyond what the visitor may see */
function explain(c: ConsoleRequest): Explanation {
  const { options, form } = c.var;
  const { snapshot, actor } = visitorOf(c);
  const username = form.get("user") ?? "";
  requireManageable(snapshot, actor, username);
  const via = form.get("via") === "mcp" ? "mcp" : "query";
  const found = options.explain(username, via, Buffer.from(form.get("query") ?? ""));
  const { isVisible } = manageableBy(snapshot, actor);
  const isSeen = (found.query?.accesses ?? []).every(({ database }) => isVisible(database));
  if (!isSeen) throw new Refusal("role_insufficient");
  return found;
}
