import { manageableBy } from "../access/administration.ts";
import { entriesIn } from "../access/entries.ts";
import type { Grant } from "../access/grant.ts";
import { decidingEntry } from "../access/rights.ts";
import { type EntryRole, EVERY_DATABASE, isExternalUsername } from "../access/roles.ts";
import { firstNames } from "../access/snapshot.ts";
import { runCooperatively } from "../cooperative-scheduling.ts";
import { type Outcome, outcomeOf } from "../gateway/query-outcome.ts";
import { type Html, html } from "../pages/html.ts";
import { Refusal } from "../refusal.ts";
import { failureOf, placeOf, requireManageable, visibleEntries } from "./changes.ts";
import {
  accountMark,
  area,
  choice,
  empty,
  type Filled,
  failureNote,
  field,
  heading,
  hidden,
  hint,
  linkButton,
  mark,
  narrowing,
  pathOf,
  required,
  roleBadge,
  table,
  unseen,
  until,
  userLink,
} from "./frame.ts";
import { type ConsoleRequest, sendPage, visitorOf } from "./visit.ts";

/** Users per page, and entries per user in the list; the user's own page shows all. */
const PAGE = 50;
const SHOWN = 6;

/** `GET /access`: the users that the visitor manages, with their entries. */
export async function showAccess(c: ConsoleRequest): Promise<Response> {
  const visitor = visitorOf(c);
  const { snapshot, actor } = visitor;
  const { isManageable, isVisible } = manageableBy(snapshot, actor);
  const at = (name: string) => (c.req.query(name) ?? "").trim();
  const [user, place] = [at("user"), at("place")];
  const [database = "", ...rest] = place.split(".");
  const after = c.req.query("after");
  const now = Date.now();

  function entriesOf(username: string): readonly Grant[] {
    if (rest.length > 0) {
      const found = decidingEntry(snapshot, username, database, rest.join("."), now);
      return found !== undefined && isVisible(found.grant.database) ? [found.grant] : [];
    }
    const entries = visibleEntries(visitor, username);
    if (database === "") return entries;
    return entries.filter((one) => [database, EVERY_DATABASE].includes(one.database));
  }
  const fits = (username: string) =>
    username.toLowerCase().includes(user.toLowerCase()) &&
    (database === "" || entriesOf(username).length > 0);
  // One more name than fits shows whether there is another page.
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
  const names = [...known, ...external].sort();
  const shown = names.slice(0, PAGE);

  function rowsOf(username: string) {
    const entries = entriesOf(username);
    const name = html`${userLink(username)} ${accountMark(snapshot.users.get(username))}`;
    if (entries.length === 0) return [[name, html`<span class="dim">no grant</span>`]];
    const again = html`<span class="again"><bdi>${username}</bdi></span>`;
    const more = entries.length - SHOWN;
    const rest = html`<a href="${pathOf("/access/user", { user: username })}">and ${more} more${unseen(" entries of ", username)}</a>`;
    const rows = entries
      .slice(0, SHOWN)
      .map((grant, index) => [
        index === 0 ? name : again,
        html`<code>${placeOf(grant)}</code>`,
        roleBadge(grant.role),
        narrowing(grant),
        until(grant, now),
      ]);
    return more > 0 ? [...rows, [again, rest]] : rows;
  }
  const list =
    shown.length > 0
      ? table(
          "Users and grants",
          ["User", "Where", "Role", "Narrowed to", ["Until", "moment"]],
          shown.flatMap(rowsOf),
        )
      : empty(
          after === undefined ? "Nobody fits whom you may manage." : "There is nobody else.",
          isExternalUsername(user) &&
            html` <a href="${pathOf("/access/entry", { user })}">Grant something to <bdi>${user}</bdi></a>.`,
          (user !== "" || place !== "") && html` <a href="/access">Show everybody</a>.`,
        );
  const filled = { fields: new Map(Object.entries({ user, place })) };
  const pages = [
    after !== undefined && linkButton("First page", "/access", { user, place }),
    names.length > PAGE &&
      linkButton("More users", "/access", { user, place, after: shown.at(-1) }),
  ];
  const rule =
    rest.length > 0
      ? html`Shown is the entry that decides on <code>${place}</code> now.`
      : html`For each table the entry that names it decides, else a pattern, else that of its database, else that for <code>*</code>.`;
  return sendPage(c, visitor, {
    title: "Access",
    place: "Access",
    content: html`${heading("Access", html`${linkButton("Would a query pass?", "/access/check")}${linkButton("Add a user", "/access/new", {}, " primary")}`)}
<form method="get" action="/access" class="tools" role="search">
${field(filled, { name: "user", label: "User contains", more: html` maxlength="128"` })}
${field(filled, { name: "place", label: "Database or table", more: html` maxlength="127" placeholder="main, or main.tickets"` })}
<button>Show</button>
</form>
${list}
${pages.some(Boolean) && html`<p class="actions">${pages}</p>`}
<p class="quiet">${rule} Access version <code>${snapshot.version}</code>.</p>`,
  });
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
  if (tables.length > 1) return hint("lists several tables: change it in the access file");
  const place = { user: username, database, table: tables[0] };
  const temporary = expires === undefined ? undefined : "yes";
  const what = unseen(" the entry for ", placeOf(grant));
  return html`<a href="${pathOf("/access/entry", { ...place, temporary })}">Change${what}</a> <a href="${pathOf("/access/end", place)}">End${what}</a>`;
}

/** `GET /access/user`: one user with all entries that the visitor may see. */
export function showUser(c: ConsoleRequest): Response {
  const visitor = visitorOf(c);
  const { snapshot, isAdministrator } = visitor;
  const username = c.req.query("user") ?? "";
  requireManageable(visitor, username);
  const user = snapshot.users.get(username);
  const entries = visibleEntries(visitor, username);
  const link = (label: string, path: string, kind?: string) =>
    linkButton(label, path, { user: username }, kind);
  const act = (action: string, label: string) =>
    linkButton(label, "/access/act", { user: username, action });
  const isExternal = isExternalUsername(username);
  const manage = html`<h2>Account</h2><p class="actions">${!isExternal && act("password", "Set a new password")}${
    user?.disabled ? act("enable", "Enable") : act("disable", "Disable")
  }${user && act("remove", "Remove")}</p>`;
  const grants = table(
    `Grants of ${username}`,
    ["Where", "Role", "Narrowed to", ["Until", "moment"], ["Action", "moment"]],
    entries.map((grant) => [
      html`<code>${placeOf(grant)}</code>`,
      html`${roleBadge(grant.role)}${hint(rights[grant.role])}`,
      narrowing(grant),
      until(grant, Date.now()),
      entryActions(grant),
    ]),
  );
  return sendPage(c, visitor, {
    title: username,
    place: "Access",
    content: html`<p class="path"><a href="/access">Access</a></p>
${heading(
  html`<bdi>${username}</bdi> ${accountMark(user)}`,
  html`${isAdministrator && link("Sessions", "/sessions")}${link("Would a query pass?", "/access/check")}${link("Grant", "/access/entry", " primary")}`,
)}
${user?.email !== undefined && html`<p class="quiet"><bdi>${user.email}</bdi></p>`}
<h2>Grants</h2>
${entries.length > 0 ? grants : empty("There is no grant yet: this user may do nothing.")}
${isAdministrator && (user !== undefined || isExternal) && manage}`,
  });
}

function decisions({ query, decided }: Outcome): Html | undefined {
  const rows = decided?.decisions?.map(({ role, entry, boundary, reason, additions = [] }, at) => {
    const { operation = "", database = "", tables = [] } = query?.accesses[at] ?? {};
    return [
      operation,
      html`<code>${tables.length === 0 ? database : `${database}.${tables.join(", ")}`}</code>`,
      entry === undefined ? "no entry" : html`${role} by <code>${entry}</code>`,
      boundary ?? "-",
      reason,
      additions.length === 0 ? "-" : html`<code>${additions.join(", ")}</code>`,
    ];
  });
  if (!rows?.length) return undefined;
  return table(
    "Decisions",
    ["Operation", "Where", "Decided by", "Boundary", "Reason", "Rows added"],
    rows,
  );
}

function answer(explanation: Outcome): Html {
  const { allowed, code, message, body } = explanation;
  const verdict = allowed
    ? mark(true, "It would pass")
    : mark(false, html`It would be refused: <code>${code}</code>`);
  return html`<section aria-live="polite"><h2>Answer</h2><p>${verdict}</p>${message !== undefined && html`<p>${message}</p>`}${decisions(explanation)}${
    body && html`<h3>The bytes that would go up</h3><pre>${body.toString()}</pre>`
  }</section>`;
}

function sendCheck(c: ConsoleRequest, filled: Filled, explanation?: Outcome): Response {
  const visitor = visitorOf(c);
  manageableBy(visitor.snapshot, visitor.actor);
  const content = html`<p class="path"><a href="/access">Access</a></p>
<h1>Would a query pass?</h1>
${failureNote(filled.failure)}
<p>Nothing is sent to a database. The query is decided on as the gateway would decide on it now.</p>
<form method="post" action="/access/check" class="sheet narrow">
${hidden("csrf", visitor.csrf)}
<div class="group">
${field(filled, { name: "user", label: "User", more: required })}
${choice(filled, { name: "via", label: "Comes by" }, ["query", "mcp"])}
</div>
${area(filled, { name: "query", label: "Query", hint: 'JSON, such as {"Select": {"database": "main", "from": "users", "columns": ["id"]}}' })}
<div class="actions"><button class="primary">Decide</button></div>
</form>
${explanation && answer(explanation)}`;
  const page = { title: "Would a query pass?", place: "Access", content } as const;
  return sendPage(c, visitor, page, filled.failure?.status);
}

export function showCheck(c: ConsoleRequest): Response {
  return sendCheck(c, { fields: new Map([["user", c.req.query("user") ?? ""]]) });
}

/**
 * `POST /access/check`: whether a query would be allowed, by which entry, and the bytes that would
 * be forwarded.
 */
export function check(c: ConsoleRequest): Response {
  const { form } = c.var;
  try {
    return sendCheck(c, { fields: form }, explain(c));
  } catch (error) {
    return sendCheck(c, { fields: form, failure: failureOf(error) });
  }
}

/** @throws Refusal for a user or a database that the visitor may not see */
function explain(c: ConsoleRequest): Outcome {
  const { gateway, form } = c.var;
  const visitor = visitorOf(c);
  const { snapshot, actor } = visitor;
  const user = form.get("user") ?? "";
  requireManageable(visitor, user);
  const via = form.get("via") === "mcp" ? "mcp" : "query";
  const found = outcomeOf(snapshot, { user, via }, Buffer.from(form.get("query") ?? ""), {
    queries: gateway.queries,
    form: gateway.configuration.upstream.query_form,
  });
  const { isVisible } = manageableBy(snapshot, actor);
  const isSeen = (found.query?.accesses ?? []).every(({ database }) => isVisible(database));
  if (!isSeen) throw new Refusal("role_insufficient");
  return found;
}
