import { manageableBy } from "../access/administration.ts";
import { entriesIn } from "../access/entries.ts";
import type { Grant, User } from "../access/grant.ts";
import { decidingEntry } from "../access/rights.ts";
import { type EntryRole, EVERY_DATABASE, isExternalUsername } from "../access/roles.ts";
import { firstNames } from "../access/snapshot.ts";
import { runCooperatively } from "../cooperative-scheduling.ts";
import { type Outcome, outcomeOf } from "../gateway/query-outcome.ts";
import { type Html, html, nothing } from "../pages/html.ts";
import { Refusal } from "../refusal.ts";
import { type Failure, failureOf, placeOf, requireManageable, visibleEntries } from "./changes.ts";
import {
  accountMark,
  area,
  type ConsolePage,
  choice,
  type Fields,
  failureNote,
  field,
  heading,
  hidden,
  narrowing,
  pathOf,
  roleBadge,
  table,
  until,
} from "./frame.ts";
import { type ConsoleRequest, sendPage, type Visitor, visitorOf } from "./visit.ts";

interface UserRow {
  readonly username: string;
  /** Undefined for a user of an external authorization server. */
  readonly user: User | undefined;
  readonly entries: readonly Grant[];
}

interface AccessView {
  readonly user: string;
  readonly place: string;
  readonly users: readonly UserRow[];
  /** The name after which the next page begins; undefined on the last page. */
  readonly next: string | undefined;
  readonly isLater: boolean;
  readonly accessVersion: string;
  /** Epoch milliseconds. */
  readonly now: number;
}

/** Entries per user in the list; the user's own page shows all. */
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
  const offer = !isExternalUsername(user)
    ? nothing
    : html` <a href="${pathOf("/access/entry", { user })}">Grant something to <bdi>${user}</bdi></a>.`;
  const sentence = isLater ? "There is nobody else." : "Nobody fits whom you may manage.";
  const isFiltered = user !== "" || place !== "";
  return html`<p class="sheet empty">${sentence}${offer}${isFiltered ? html` <a href="/access">Show everybody</a>.` : nothing}</p>`;
}

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

interface UserPageView extends UserRow {
  readonly isAdministrator: boolean;
  /** Epoch milliseconds. */
  readonly now: number;
}

const rights: Readonly<Record<EntryRole, string>> = {
  Owner: "everything there, and every grant",
  DbAdmin: "rows and tables, and grants up to ReadWrite",
  ReadWrite: "reads and changes rows",
  ReadOnly: "reads rows",
  None: "nothing",
};

function entryActions(grant: Grant): Html {
  const { username, database, tables = [], expires } = grant;
  if (tables.length > 1)
    return html`<span class="hint">lists several tables: change it in the access file</span>`;
  const place = { user: username, database, table: tables[0] };
  const temporary = expires === undefined ? undefined : "yes";
  const what = html`<span class="unseen"> the entry for ${placeOf(grant)}</span>`;
  return html`<a href="${pathOf("/access/entry", { ...place, temporary })}">Change${what}</a> <a href="${pathOf("/access/end", place)}">End${what}</a>`;
}

function manage({ username, user }: UserPageView): Html {
  const isExternal = isExternalUsername(username);
  if (user === undefined && !isExternal) return nothing;
  const act = (action: string, label: string) =>
    html`<a class="button" href="${pathOf("/access/act", { user: username, action })}">${label}</a> `;
  return html`<h2>Account</h2><p class="actions">${isExternal ? nothing : act("password", "Set a new password")}${
    user?.disabled ? act("enable", "Enable") : act("disable", "Disable")
  }${user === undefined ? nothing : act("remove", "Remove")}</p>`;
}

function grants({ username, entries, now }: UserPageView): Html {
  if (entries.length === 0)
    return html`<p class="sheet empty">There is no grant yet: this user may do nothing.</p>`;
  return table(
    `Grants of ${username}`,
    ["Where", "Role", "Narrowed to", ["Until", "moment"], ["Action", "moment"]],
    entries.map((grant) => [
      html`<code>${placeOf(grant)}</code>`,
      html`${roleBadge(grant.role)}<span class="hint">${rights[grant.role]}</span>`,
      narrowing(grant),
      until(grant, now),
      entryActions(grant),
    ]),
  );
}

function userPage(view: UserPageView): ConsolePage {
  const { username, user, isAdministrator } = view;
  const email =
    user?.email === undefined ? nothing : html`<p class="quiet"><bdi>${user.email}</bdi></p>`;
  const sessions = html`<a class="button" href="${pathOf("/sessions", { user: username })}">Sessions</a> `;
  const actions = html`${isAdministrator ? sessions : nothing}<a class="button" href="${pathOf("/access/check", { user: username })}">Would a query pass?</a> <a class="button primary" href="${pathOf("/access/entry", { user: username })}">Grant</a>`;
  return {
    title: username,
    place: "access",
    content: html`<p class="path"><a href="/access">Access</a></p>
${heading(html`<bdi>${username}</bdi> ${accountMark(user)}`, actions)}
${email}
<h2>Grants</h2>
${grants(view)}
${isAdministrator ? manage(view) : nothing}`,
  };
}

interface CheckView {
  readonly fields: Fields;
  readonly csrf: string;
  readonly explanation?: Outcome;
  readonly failure?: Failure;
}

function decisions({ query, decided }: Outcome): Html {
  const rows = (decided?.decisions ?? []).map(
    ({ role, entry, boundary, reason, additions = [] }, at) => {
      const { operation = "", database = "", tables = [] } = query?.accesses[at] ?? {};
      const place = tables.length === 0 ? database : `${database}.${tables.join(", ")}`;
      return [
        operation,
        html`<code>${place}</code>`,
        entry === undefined ? "no entry" : html`${role ?? ""} by <code>${entry}</code>`,
        boundary ?? "-",
        reason,
        additions.length === 0 ? "-" : html`<code>${additions.join(", ")}</code>`,
      ];
    },
  );
  if (rows.length === 0) return nothing;
  return table(
    "Decisions",
    ["Operation", "Where", "Decided by", "Boundary", "Reason", "Rows added"],
    rows,
  );
}

function answer(explanation: Outcome | undefined): Html {
  if (explanation === undefined) return nothing;
  const { allowed, code, message, body } = explanation;
  const why = message === undefined ? nothing : html`<p>${message}</p>`;
  const verdict = allowed
    ? html`<span class="state good">It would pass</span>`
    : html`<span class="state bad">It would be refused: <code>${code}</code></span>`;
  const bytes =
    body === undefined
      ? nothing
      : html`<h3>The bytes that would go up</h3><pre>${body.toString()}</pre>`;
  return html`<section aria-live="polite"><h2>Answer</h2><p>${verdict}</p>${why}${decisions(explanation)}${bytes}</section>`;
}

function checkPage(view: CheckView): ConsolePage {
  const { csrf, explanation, failure } = view;
  return {
    title: "Would a query pass?",
    place: "access",
    content: html`<p class="path"><a href="/access">Access</a></p>
<h1>Would a query pass?</h1>
${failureNote(failure)}
<p>Nothing is sent to a database. The query is decided on as the gateway would decide on it now.</p>
<form method="post" action="/access/check" class="sheet narrow">
${hidden("csrf", csrf)}
<div class="group">
${field(view, { name: "user", label: "User", isRequired: true })}
${choice(view, { name: "via", label: "Comes by" }, ["query", "mcp"])}
</div>
${area(view, { name: "query", label: "Query", hint: 'JSON, such as {"Select": {"database": "main", "from": "users", "columns": ["id"]}}' })}
<div class="actions"><button class="primary">Decide</button></div>
</form>
${answer(explanation)}`,
  };
}

/** Users per page. */
const PAGE = 50;

interface Asked {
  readonly user: string;
  readonly database: string;
  readonly table: string | undefined;
  readonly after: string | undefined;
  /** Epoch milliseconds. */
  readonly now: number;
}

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

/** The names on a page, plus one more if there is another page. */
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
  result: { explanation?: Outcome; failure?: Failure },
): Response {
  const visitor = visitorOf(c);
  manageableBy(visitor.snapshot, visitor.actor);
  const page = checkPage({ fields, csrf: visitor.csrf, ...result });
  return sendPage(c, visitor, page, result.failure?.status);
}

export function showCheck(c: ConsoleRequest): Response {
  return show(c, new Map([["user", c.req.query("user") ?? ""]]), {});
}

/**
 * `POST /access/check`: whether a query would be allowed, by which entry, and the bytes that would
 * be forwarded.
 */
export function check(c: ConsoleRequest): Response {
  const { form } = c.var;
  try {
    return show(c, form, { explanation: explain(c) });
  } catch (error) {
    return show(c, form, { failure: failureOf(error) });
  }
}

/** @throws Refusal for a user or a database that the visitor may not see */
function explain(c: ConsoleRequest): Outcome {
  const { gateway, form } = c.var;
  const { snapshot, actor } = visitorOf(c);
  const username = form.get("user") ?? "";
  requireManageable(snapshot, actor, username);
  const via = form.get("via") === "mcp" ? "mcp" : "query";
  const { queries, configuration } = gateway;
  const found = outcomeOf(snapshot, { user: username, via }, Buffer.from(form.get("query") ?? ""), {
    queries,
    form: configuration.upstream.query_form,
  });
  const { isVisible } = manageableBy(snapshot, actor);
  const isSeen = (found.query?.accesses ?? []).every(({ database }) => isVisible(database));
  if (!isSeen) throw new Refusal("role_insufficient");
  return found;
}
