import { manageableBy } from "../access/administration-rights.ts";
import { decidingEntry } from "../access/deciding-entry.ts";
import { EVERY_DATABASE } from "../access/roles.ts";
import { firstNames, type Grant, type User } from "../access/snapshot.ts";
import { entriesIn } from "../access/user-grants.ts";
import { runCooperatively } from "../cooperative-scheduling.ts";
import { type Html, html, nothing } from "../pages/html.ts";
import { placeOf, visibleEntries } from "./changes.ts";
import {
  accountMark,
  type ConsolePage,
  heading,
  narrowing,
  pathOf,
  roleBadge,
  table,
  until,
} from "./pages/frame.ts";
import { type Console, type ConsoleRequest, sendPage, type Visitor, visitorOf } from "./visit.ts";

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
export async function showAccess(console: Console, c: ConsoleRequest): Promise<Response> {
  const visitor = visitorOf(console, c);
  const { snapshot } = visitor;
  const [user, place] = ["user", "place"].map((name) => (c.req.query(name) ?? "").trim());
  const [database = "", ...rest] = (place ?? "").split(".");
  const table = rest.length === 0 ? undefined : rest.join(".");
  const after = c.req.query("after");
  const asked = { user: user ?? "", database, table, after, now: Date.now() };
  const names = await namesOf(visitor, asked);
  const shown = names.slice(0, PAGE);
  const page = accessPage({
    ...asked,
    place: place ?? "",
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

/** A user and its entries. */
export interface UserRow {
  readonly username: string;
  /** Undefined for a user of an external authorization server. */
  readonly user: User | undefined;
  readonly entries: readonly Grant[];
}

/** What the page of users and grants shows. */
interface AccessView {
  readonly user: string;
  /** A database, or `database.table`. */
  readonly place: string;
  readonly users: readonly UserRow[];
  /** The name to go on after; undefined if all are shown. */
  readonly next: string | undefined;
  /** True if this is not the first page. */
  readonly isLater: boolean;
  readonly accessVersion: string;
  /** Epoch milliseconds. */
  readonly now: number;
}

/** Entries of one user that the list shows; the page of the user has them all. */
const SHOWN = 6;

function rows({ username, user, entries }: UserRow, now: number): (Html | string)[][] {
  const path = pathOf("/access/user", { user: username });
  const name = html`<a href="${path}"><bdi>${username}</bdi></a> ${accountMark(user)}`;
  const again = html`<span class="again"><bdi>${username}</bdi></span>`;
  if (entries.length === 0) return [[name, html`<span class="dim">no grant</span>`, "", "", ""]];
  const more = entries.length - SHOWN;
  const shown = entries
    .slice(0, SHOWN)
    .map((grant, at) => [
      at === 0 ? name : again,
      html`<code>${placeOf(grant)}</code>`,
      roleBadge(grant.role),
      narrowing(grant),
      until(grant, now),
    ]);
  const rest = html`<a href="${path}">and ${String(more)} more<span class="unseen"> entries of ${username}</span></a>`;
  return more > 0 ? [...shown, [again, rest, "", "", ""]] : shown;
}

function filter({ user, place }: AccessView): Html {
  return html`<form method="get" action="/access" class="tools" role="search">
<div class="field"><label for="user">User contains</label><input id="user" name="user" value="${user}" maxlength="128" autocapitalize="none" spellcheck="false"></div>
<div class="field"><label for="place">Database or table</label><input id="place" name="place" value="${place}" maxlength="127" placeholder="main, or main.tickets" autocapitalize="none" spellcheck="false"></div>
<button>Show</button>
</form>`;
}

function nobody({ user, place, isLater }: AccessView): Html {
  const offer =
    user === ""
      ? nothing
      : html` <a href="${pathOf("/access/entry", { user })}">Grant something to <bdi>${user}</bdi></a>.`;
  const sentence = isLater ? "There is nobody else." : "Nobody fits whom you may manage.";
  const isFiltered = user !== "" || place !== "";
  return html`<p class="sheet empty">${sentence}${offer}${isFiltered ? html` <a href="/access">Show everybody</a>.` : nothing}</p>`;
}

/** The page of users and grants. */
function accessPage(view: AccessView): ConsolePage {
  const { users, next, user, place, isLater, now } = view;
  const first = html`<a class="button" href="${pathOf("/access", { user, place })}">First page</a> `;
  const after = html`<a class="button" href="${pathOf("/access", { user, place, after: next })}">More users</a>`;
  const actions = html`<a class="button" href="/access/check">Would a query pass?</a> <a class="button primary" href="/access/new">Add a user</a>`;
  const list =
    users.length === 0
      ? nobody(view)
      : table(
          "Users and grants",
          ["User", "Where", "Role", "Narrowed to", ["Until", "moment"]],
          users.flatMap((one) => rows(one, now)),
        );
  const rule = place.includes(".")
    ? html`Shown is the entry that decides on <code>${place}</code> now.`
    : html`For each table the entry that names it decides, else a pattern, else that of its database, else that for <code>*</code>.`;
  return {
    title: "Access",
    place: "access",
    content: html`${heading("Access", actions)}
${filter(view)}
${list}
${isLater || next !== undefined ? html`<p class="actions">${isLater ? first : nothing}${next === undefined ? nothing : after}</p>` : nothing}
<p class="quiet">${rule} Access version <code>${view.accessVersion}</code>.</p>`,
  };
}
