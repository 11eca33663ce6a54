/** The search box: users and groups, databases and tables, and request ids. */
import { manageableBy, requireManager } from "../../core/access/administration.ts";
import { entriesIn } from "../../core/access/entries.ts";
import {
  groupHolder,
  groupOf,
  type Holder,
  holderText,
  userHolder,
} from "../../core/access/holder.ts";
import { EVERY_DATABASE, isExternalUsername } from "../../core/access/roles.ts";
import { firstNames } from "../../core/access/snapshot.ts";
import { runCooperatively, visitEach } from "../../core/base/cooperative-scheduling.ts";
import { type Html, html } from "../../core/base/html.ts";
import { placeName, splitPlace } from "../../core/query/names.ts";
import { findRequest } from "./audit.ts";
import { holderMark, pathOf, table, userLink, userPath, type Visitor } from "./frame.ts";
import { type ConsoleRequest, sendPage, visitorOf } from "./visit.ts";

/** Hits of each kind, and databases whose tables are searched. */
const SHOWN = 20;
const SEARCHED = 20;

interface Hit {
  readonly path: string;
  readonly kind: "User" | "Group" | "Database" | "Table" | "Request";
  readonly link: Html;
}

async function findHolders(visitor: Visitor, asked: string): Promise<Hit[]> {
  const { snapshot, actor } = visitor;
  const { users, groups, grants } = snapshot;
  const { isManageable } = manageableBy(snapshot, actor);
  const holders = new Set([
    ...users.keys().map(userHolder),
    ...groups.keys().map(groupHolder),
    ...grants.keys(),
    ...groups.values().flatMap(({ members }) => members.map(userHolder)),
  ]);
  const wanted = asked.toLowerCase();
  const fits = (holder: Holder) =>
    holderText(holder).toLowerCase().includes(wanted) && isManageable(holder);
  const found = await runCooperatively(firstNames(holders, SHOWN, undefined, fits));
  const exact = [userHolder(asked), groupHolder(asked)].filter(
    (one) => holders.has(one) && isManageable(one),
  );
  return [...new Set([...exact, ...found])].map((holder) => ({
    path: userPath(holder),
    kind: groupOf(holder) === undefined ? "User" : "Group",
    link: html`${userLink(holder)} ${holderMark(snapshot, holder)}`,
  }));
}

/** Places that the access file names, and those that the databases list in time. */
async function placesFor(c: ConsoleRequest, database: string | undefined): Promise<Set<string>> {
  const { snapshot, actor, maySee } = visitorOf(c);
  const { suggestNames } = c.var;
  const places = new Set<string>(snapshot.databases.values());
  const { databases } = await suggestNames(actor, "", "");
  for (const name of databases) places.add(name);
  const asked = [...places].filter((name) => database === undefined || name === database);
  for (const name of asked.filter(maySee).slice(0, SEARCHED)) {
    const { tables } = await suggestNames(actor, name, "");
    for (const table of tables) places.add(placeName(name, table));
  }
  const visit = ({ database, tables = [] }: { database: string; tables?: readonly string[] }) => {
    for (const table of tables) places.add(placeName(database, table));
  };
  const grants = snapshot.grants.values().flatMap((held) => entriesIn(held));
  await runCooperatively(visitEach(grants, visit));
  return places;
}

/** Databases and tables. `main.tick` finds tables of one database. */
async function findPlaces(c: ConsoleRequest, asked: string): Promise<Hit[]> {
  const { maySee } = visitorOf(c);
  const wanted = asked.toLowerCase();
  const { database, table: named } = splitPlace(asked);
  const places = await placesFor(c, named === undefined ? undefined : database);
  const fits = (place: string) => {
    const { database, table = database } = splitPlace(place);
    if (!maySee(database) || database === EVERY_DATABASE || place.includes("*")) return false;
    return table.toLowerCase().includes(wanted) || place.toLowerCase().startsWith(wanted);
  };
  return [...places]
    .filter(fits)
    .sort((one, other) => Number(other === asked) - Number(one === asked) || (one < other ? -1 : 1))
    .slice(0, SHOWN)
    .map((place) => {
      const path = pathOf("/access/table", { place });
      const kind = splitPlace(place).table === undefined ? "Database" : "Table";
      return { path, kind, link: html`<a href="${path}"><code>${place}</code></a>` };
    });
}

/** Only searched if no name was found, since it reads the audit. */
async function findRequests(c: ConsoleRequest, asked: string): Promise<Hit[]> {
  const line = await findRequest(c, asked).catch(() => undefined);
  if (line === undefined) return [];
  const path = pathOf("/audit", { request: asked, since: "" });
  return [{ path, kind: "Request", link: html`<a href="${path}"><code>${asked}</code></a>` }];
}

function nothingFor(asked: string): Html {
  const grant = pathOf("/access/entry", { user: asked });
  const [request, user] = ["request", "user"].map((name) =>
    pathOf("/audit", { [name]: asked, since: "" }),
  );
  return html`Nothing found for <strong><bdi>${asked}</bdi></strong>. Enter part of the name of a user, group or table, a table as <code>main.tickets</code>, or a whole request id. Or search the whole audit for <a href="${request}">this request id</a> or <a href="${user}">this user</a>${isExternalUsername(asked) && html`, or <a href="${grant}">grant access to <bdi>${asked}</bdi></a>`}.`;
}

/** Shows what was found, or goes to the only hit. */
export async function showSearch(c: ConsoleRequest): Promise<Response> {
  const visitor = visitorOf(c);
  requireManager(visitor.snapshot, visitor.actor);
  const asked = (c.req.query("q") ?? "").trim();
  const names =
    asked === "" ? [] : [...(await findHolders(visitor, asked)), ...(await findPlaces(c, asked))];
  const hits = names.length > 0 || asked === "" ? names : await findRequests(c, asked);
  const [first, ...others] = hits;
  if (first !== undefined && others.length === 0) return c.redirect(first.path, 303);
  const rows = hits.map(({ kind, link }) => [link, kind]);
  const none =
    asked === ""
      ? "Enter part of the name of a user, group or table, or a whole request id."
      : nothingFor(asked);
  return sendPage(c, {
    title: "Search",
    asked,
    content: html`${table("Found", ["Name", "Kind"], rows, none)}
${rows.length >= SHOWN && html`<p class="quiet">Only the first hits are shown. Enter more of the name.</p>`}`,
  });
}
