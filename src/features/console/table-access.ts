/** Effective access: of all users to one table, and of one user to every place. */

import { manageableBy, maySeeDecision, visibleBoundary } from "../../core/access/administration.ts";
import {
  type EffectiveAccess,
  effectiveAccess,
  effectiveAt,
  effectiveLimits,
  operationsInWords,
  wayInWords,
} from "../../core/access/effective.ts";
import { groupOf, type Holder, holderName, holderText, userOf } from "../../core/access/grant.ts";
import { callerFor, mayHaveTokenGroups } from "../../core/access/groups.ts";
import { type QuestionSetting, questionSetting } from "../../core/access/policy.ts";
import { decidingEntry } from "../../core/access/rights.ts";
import {
  EVERY_DATABASE,
  isDatabaseOrEvery,
  isExternalGroup,
  isLocalGroupName,
} from "../../core/access/roles.ts";
import { type Html, html, type Part } from "../../core/base/html.ts";
import { Refusal } from "../../core/base/refusal.ts";
import { type Place, placeName, splitPlace } from "../../core/query/names.ts";
import { everyHolder, holderPage } from "./changes.ts";
import {
  dim,
  field,
  groupRows,
  hidden,
  holderMark,
  limitWords,
  linkButton,
  mark,
  parseList,
  pathOf,
  table,
  unseen,
  userLink,
  type Visitor,
} from "./frame.ts";
import { type ConsoleRequest, sendPage, visitorOf } from "./visit.ts";

function operationsOf(visitor: Visitor, row: EffectiveAccess): Part {
  const { boundary } = row;
  const words = operationsInWords({
    ...row,
    ...(boundary !== undefined && { boundary: visibleBoundary(visitor, boundary) }),
  });
  return row.operations.length > 0 ? words : mark(false, words);
}

function placeLink({ database, table }: Place): Html {
  const place = placeName(database, table);
  if (database === EVERY_DATABASE) return html`<code>${place}</code>`;
  return html`<a href="${pathOf("/access/table", { place })}"><code>${place}</code></a>`;
}

/** The effective access of a user or group, on the databases that the visitor manages. */
export function effectiveSection(c: ConsoleRequest, holder: Holder): Html {
  const visitor = visitorOf(c);
  const { snapshot, actor } = visitor;
  const { isVisible } = manageableBy(snapshot, actor);
  const username = userOf(holder);
  const groups = parseList(c.req.query("groups")).filter(isExternalGroup);
  const caller = { ...callerFor(holder), groups };
  const rows = effectiveAccess(
    snapshot,
    caller,
    questionSetting(c.var.gateway.configuration),
  ).filter((row) => isVisible(row.database) && maySeeDecision(visitor, caller, row));
  const hasTokenGroups = username !== undefined && mayHaveTokenGroups(snapshot, username);
  const state = { fields: new Map([["groups", c.req.query("groups") ?? ""]]) };
  const none = hasTokenGroups
    ? "None without the groups of the user's token."
    : "Nothing: no entry, group or database reaches this user.";
  return html`<h2>Effective access</h2>
${
  hasTokenGroups &&
  html`<form method="get" action="/access/user" class="tools">${hidden("user", username)}
${field(state, { name: "groups", label: "Groups of the token", hint: "Only the user's token names them, such as staff:engineering" })}
<button>Show</button>
</form>`
}
${table(
  `Effective access of ${holderName(holder)}`,
  ["Where", "Operations", "Limits", "Via", "Decided by"],
  rows.map((row) => [
    placeLink(row),
    operationsOf(visitor, row),
    limitWords(effectiveLimits(row)),
    wayInWords(row),
    html`<code>${row.entry}</code>`,
  ]),
  none,
)}`;
}

/** The rows of a user or group on one place, by entries that the visitor may see. */
function rowsAt({ snapshot, actor }: Visitor, place: Place, setting: QuestionSetting) {
  const { isVisible } = manageableBy(snapshot, actor);
  return (holder: Holder): EffectiveAccess[] => {
    const caller = callerFor(holder);
    const deciding = decidingEntry(snapshot, caller, place.database, place.table, setting.now);
    if (deciding === undefined || !isVisible(deciding.grant.database)) return [];
    return effectiveAt(snapshot, caller, place, setting).filter((row) => row.operations.length > 0);
  };
}

/** The columns of a table, the hidden ones struck out. @param known as far as the schema is known */
function columnsOf({ limits }: EffectiveAccess, known: readonly string[]): Part {
  const { columns } = limits ?? {};
  if (columns === undefined) return "all";
  const hiddenOnes = known.filter((name) => !columns.includes(name));
  const struck = hiddenOnes.map((name) => html` <del><code>${name}</code></del>`);
  return html`<code>${columns.join(", ")}</code>${struck.length > 0 && html`<div>${unseen("Hidden: ")}${struck}</div>`}`;
}

function otherLimits({ limits, ...row }: EffectiveAccess): Part {
  if (limits === undefined) return dim("none");
  const { columns: _, ...others } = limits;
  return limitWords(effectiveLimits({ ...row, limits: others }));
}

function searchForm(place: string): Html {
  const state = { fields: new Map([["place", place]]) };
  return html`<form method="get" action="/access/table" class="tools" role="search">
${field(state, { name: "place", label: "Table", more: html` maxlength="127" placeholder="main.tickets"` })}
<button>Show</button>
</form>`;
}

function tableList(database: string, tables: readonly string[]): Html | undefined {
  if (tables.length === 0) return undefined;
  const items = tables.map((name) => html`<li>${placeLink({ database, table: name })}</li>`);
  return html`<details><summary>Tables of <code>${database}</code></summary><ul class="plain">${items}</ul></details>`;
}

/** The default database if it exists, else another one that the visitor manages. */
async function firstDatabase(c: ConsoleRequest): Promise<string> {
  const { default_database: preferred } = c.var.gateway.configuration.auth;
  const { databases } = await c.var.suggestNames(visitorOf(c).actor, "", "");
  return databases.includes(preferred) ? preferred : (databases[0] ?? preferred);
}

/** Everyone who may use a table, or a database as a whole. */
export async function showTable(c: ConsoleRequest): Promise<Response> {
  const visitor = visitorOf(c);
  const { snapshot, actor, isManager, isAdministrator, maySee } = visitor;
  if (!isManager) throw new Refusal("role_insufficient");
  const asked = (c.req.query("place") ?? "").trim();
  const place = asked === "" ? { database: await firstDatabase(c) } : splitPlace(asked);
  const { database, table: name } = place;
  if (!isDatabaseOrEvery(database)) throw new Refusal("invalid_database");
  if (asked !== "" && !maySee(database)) throw new Refusal("role_insufficient");
  const after = c.req.query("after");
  const rowsOf = rowsAt(visitor, place, questionSetting(c.var.gateway.configuration));
  const page = await holderPage(
    visitor,
    after,
    everyHolder(snapshot),
    // The members of local groups are users; those of other groups only tokens tell.
    (holder) => !isLocalGroupName(groupOf(holder)) && rowsOf(holder).length > 0,
  );
  const shown = maySee(database) ? page.shown : [];
  const written = placeName(database, name);
  const names = await c.var.suggestNames(actor, database, name ?? "");
  const access = shown.map((holder) => ({ holder, access: rowsOf(holder) }));
  const named = access.flatMap((one) => one.access.flatMap(({ limits }) => limits?.columns ?? []));
  const known = name === undefined ? [] : [...new Set([...names.columns, ...named])];
  const rows = access.flatMap(({ holder, access }) =>
    groupRows(
      html`${userLink(holder)} ${holderMark(snapshot, holder)}`,
      html`<bdi>${holderName(holder)}</bdi>`,
      access.map((row) => [
        operationsOf(visitor, row),
        columnsOf(row, known),
        otherLimits(row),
        wayInWords(row),
        html`<code>${row.entry}</code>`,
      ]),
    ),
  );
  const next =
    page.next &&
    linkButton("More users", "/access/table", { place: written, after: holderText(page.next) });
  return sendPage(c, {
    title: `Access to ${written}`,
    section: "Access",
    path: html`<a href="/access">Access</a>`,
    heading: html`Access to <code>${written}</code>`,
    content: html`${searchForm(written)}
${names.problem && html`<p class="wrong">${names.problem}</p>`}
${name !== undefined && names.columns.length > 0 && html`<p class="quiet">Columns: <code>${names.columns.join(", ")}</code></p>`}
${table(
  `Users of ${written}`,
  ["User", "Operations", "Columns", "Limits", "Via", "Decided by"],
  rows,
  after === undefined
    ? html`No user whom you may manage has access. Choose one <a href="/access">under Access</a> and grant it there.`
    : "No more users.",
)}
${next && html`<p class="actions">${next}</p>`}
${!isAdministrator && html`<p class="quiet">Administrators also see users with access to every database.</p>`}
${tableList(database, names.tables)}`,
  });
}
