/** The search box: users and groups, databases and tables, and request ids. */
import { manageableBy } from "../../core/access/administration.ts";
import { entriesIn } from "../../core/access/entries.ts";
import {
  groupHolder,
  groupOf,
  type Holder,
  holderText,
  userHolder,
} from "../../core/access/grant.ts";
import { EVERY_DATABASE, isExternalUsername } from "../../core/access/roles.ts";
import { firstNames } from "../../core/access/snapshot.ts";
import { runCooperatively, visitEach } from "../../core/base/cooperative-scheduling.ts";
import { type Html, html } from "../../core/base/html.ts";
import { Refusal } from "../../core/base/refusal.ts";
import { placeName, splitPlace } from "../../core/query/names.ts";
import { findRequest } from "./audit.ts";
import { everyHolder } from "./changes.ts";
import { holderMark, pathOf, table, userLink, userPath, type Visitor } from "./frame.ts";
import { type ConsoleRequest, managerOf, sendPage, visitorOf } from "./visit.ts";

/** Hits of each kind, and databases whose tables are searched. */
const SHOWN = 20;
const SEARCHED = 20;
/** For the tables of all databases together. */
const LISTING_MS = 2000;

interface Hit {
  readonly path: string;
  readonly kind: "User" | "Group" | "Database" | "Table" | "Request";
  readonly link: Html;
}

interface Found {
  readonly hits: readonly Hit[];
  /** Sentence about the part that was not searched. */
  readonly missed: string | undefined;
}

async function findHolders(visitor: Visitor, asked: string): Promise<Hit[]> {
  const { snapshot, actor } = visitor;
  const { isManageable } = manageableBy(snapshot, actor);
  const holders = everyHolder(snapshot);
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

/**
 * Places that the access file names, and those that the databases list in time.
 *
 * @returns `isLate`, true if a database did not list its tables in time
 */
async function placesFor(c: ConsoleRequest, database: string | undefined) {
  const { snapshot, actor, maySee } = visitorOf(c);
  const { suggestNames } = c.var;
  const places = new Set<string>(snapshot.databases.values());
  const { databases } = await suggestNames(actor, "", "");
  for (const name of databases) places.add(name);
  const asked = [...places].filter((name) => database === undefined || name === database);
  const signal = AbortSignal.timeout(LISTING_MS);
  const listings = asked
    .filter(maySee)
    .slice(0, SEARCHED)
    .map(async (name) => {
      const { tables } = await suggestNames(actor, name, "", signal);
      for (const table of tables) places.add(placeName(name, table));
    });
  await Promise.all(listings);
  const isLate = signal.aborted;
  const visit = ({ database, tables = [] }: { database: string; tables?: readonly string[] }) => {
    for (const table of tables) places.add(placeName(database, table));
  };
  const grants = snapshot.grants.values().flatMap((held) => entriesIn(held));
  await runCooperatively(visitEach(grants, visit));
  return { places, isLate };
}

/** Databases and tables. `main.tick` finds tables of one database. */
async function findPlaces(c: ConsoleRequest, asked: string): Promise<Found> {
  const { maySee } = visitorOf(c);
  const wanted = asked.toLowerCase();
  const { database, table: named } = splitPlace(asked);
  const { places, isLate } = await placesFor(c, named === undefined ? undefined : database);
  const fits = (place: string) => {
    const { database, table = database } = splitPlace(place);
    if (!maySee(database) || database === EVERY_DATABASE || place.includes("*")) return false;
    return table.toLowerCase().includes(wanted) || place.toLowerCase().startsWith(wanted);
  };
  const hits = [...places]
    .filter(fits)
    .sort((one, other) => Number(other === asked) - Number(one === asked) || (one < other ? -1 : 1))
    .slice(0, SHOWN)
    .map((place): Hit => {
      const path = pathOf("/access/table", { place });
      const kind = splitPlace(place).table === undefined ? "Database" : "Table";
      return { path, kind, link: html`<a href="${path}"><code>${place}</code></a>` };
    });
  const missed = "Some tables were not searched, since a database did not list them in time.";
  return { hits, missed: isLate ? missed : undefined };
}

/** Only searched if no name was found, since it reads the audit. */
async function findRequests(c: ConsoleRequest, asked: string): Promise<Found> {
  try {
    const { lines = [], next } = (await findRequest(c, asked)) ?? {};
    if (lines.length === 0) {
      return { hits: [], missed: next && "Only the newest lines of the audit were searched." };
    }
  } catch (error) {
    if (!(error instanceof Refusal)) throw error;
    return { hits: [], missed: "The audit was not searched, since it cannot be read now." };
  }
  const path = pathOf("/audit", { request: asked, since: "" });
  const link = html`<a href="${path}"><code>${asked}</code></a>`;
  return { hits: [{ path, kind: "Request", link }], missed: undefined };
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
  const visitor = managerOf(c);
  const asked = (c.req.query("q") ?? "").trim();
  const none: Found = { hits: [], missed: undefined };
  const isAsked = asked !== "";
  const holders = isAsked ? await findHolders(visitor, asked) : [];
  const places = isAsked ? await findPlaces(c, asked) : none;
  const names = [...holders, ...places.hits];
  const requests = isAsked && names.length === 0 ? await findRequests(c, asked) : none;
  const hits = [...names, ...requests.hits];
  const missed = [places.missed, requests.missed].filter((one) => one !== undefined).join(" ");
  const [first, ...others] = hits;
  if (first !== undefined && others.length === 0) return c.redirect(first.path, 303);
  const rows = hits.map(({ kind, link }) => [link, kind]);
  const nothing = isAsked
    ? nothingFor(asked)
    : "Enter part of the name of a user, group or table, or a whole request id.";
  return sendPage(c, {
    title: "Search",
    asked,
    content: html`${table("Found", ["Name", "Kind"], rows, nothing)}
${missed !== "" && html`<p class="quiet">${missed}</p>`}
${rows.length >= SHOWN && html`<p class="quiet">Only the first hits are shown. Enter more of the name.</p>`}`,
  });
}
