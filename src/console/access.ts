import {
  manageableBy,
  maySeeGrants,
  requireAdministrator,
  requireManager,
} from "../access/administration.ts";
import { entriesAt, entriesIn } from "../access/entries.ts";
import { readCondition, viewEntry, writeCondition, writtenTime } from "../access/entry-view.ts";
import type { Grant } from "../access/grant.ts";
import { seeTable, whyUnseen } from "../access/policy.ts";
import { entryRoles, type Report, readGrant } from "../access/records.ts";
import { decidingEntry } from "../access/rights.ts";
import {
  type EntryRole,
  EVERY_DATABASE,
  isExternalUsername,
  roles,
  type Subject,
} from "../access/roles.ts";
import { firstNames, grantsOf } from "../access/snapshot.ts";
import { type AccountAction, accountActions, actions, bodies } from "../administration/actions.ts";
import { runCooperatively } from "../cooperative-scheduling.ts";
import type { Gateway } from "../gateway/gateway.ts";
import { credentialOf } from "../gateway/query.ts";
import { type Outcome, outcomeOf } from "../gateway/query-outcome.ts";
import { hashClientOf } from "../identity/login.ts";
import { hashPassword } from "../identity/password.ts";
import { type Html, html } from "../pages/html.ts";
import { Refusal } from "../refusal.ts";
import { fieldLines } from "../upstream/headers.ts";
import { createSchemaSource } from "../upstream/schema-source.ts";
import {
  type ConsoleForm,
  invalidFields,
  makeChange,
  mayGrantTo,
  placeOf,
  requireManageable,
  sendForm,
  visibleEntries,
} from "./changes.ts";
import {
  accountMark,
  boxes,
  checkbox,
  empty,
  type Fields,
  type Filled,
  failureNote,
  field,
  heading,
  hidden,
  hint,
  linkButton,
  listedIn,
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
  return sendPage(c, {
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
  return sendPage(c, {
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

function answer({ allowed, code, message, body, query, decided }: Outcome): Html {
  const rows = (decided?.decisions ?? []).map(
    ({ role, entry, boundary, reason, additions = [] }, at) => {
      const { operation = "", database = "", tables = [] } = query?.accesses[at] ?? {};
      return [
        operation,
        html`<code>${tables.length === 0 ? database : `${database}.${tables.join(", ")}`}</code>`,
        entry === undefined ? "no entry" : html`${role} by <code>${entry}</code>`,
        boundary ?? "-",
        reason,
        additions.length === 0 ? "-" : html`<code>${additions.join(", ")}</code>`,
      ];
    },
  );
  const columns = ["Operation", "Where", "Decided by", "Boundary", "Reason", "Rows added"];
  const verdict = allowed
    ? mark(true, "It would pass")
    : mark(false, html`It would be refused: <code>${code}</code>`);
  return html`<section aria-live="polite"><h2>Answer</h2><p>${verdict}</p>
${message !== undefined && html`<p>${message}</p>`}
${rows.length > 0 && table("Decisions", columns, rows)}
${body && html`<h3>The bytes that would go up</h3><pre>${body.toString()}</pre>`}</section>`;
}

function sendCheck(c: ConsoleRequest, filled: Filled, explanation?: Outcome): Response {
  const content = html`<p class="path"><a href="/access">Access</a></p>
<h1>Would a query pass?</h1>
${failureNote(filled.failure)}
<p>Nothing is sent to a database. The query is decided on as the gateway would decide on it now.</p>
<form method="post" action="/access/check" class="sheet narrow">
${hidden("csrf", visitorOf(c).csrf)}
<div class="group">
${field(filled, { name: "user", label: "User", more: required })}
${field(filled, { name: "via", label: "Comes by", values: ["query", "mcp"] })}
</div>
${field(filled, { name: "query", type: "area", label: "Query", hint: 'JSON, such as {"Select": {"database": "main", "from": "users", "columns": ["id"]}}' })}
<div class="actions"><button class="primary">Decide</button></div>
</form>
${explanation && answer(explanation)}`;
  const { failure } = filled;
  return sendPage(c, { title: "Would a query pass?", place: "Access", failure, content });
}

const check: ConsoleForm = {
  start: ({ req }) => new Map([["user", req.query("user") ?? ""]]),
  require(c) {
    const { snapshot, actor } = visitorOf(c);
    requireManager(snapshot, actor);
  },
  send: sendCheck,
  async submit(c, fields) {
    const { queries, configuration } = c.var.gateway;
    const visitor = visitorOf(c);
    const user = fields.get("user") ?? "";
    requireManageable(visitor, user);
    const asker = { user, via: fields.get("via") === "mcp" ? "mcp" : "query" } as const;
    const body = Buffer.from(fields.get("query") ?? "");
    const form = configuration.upstream.query_form;
    const found = outcomeOf(visitor.snapshot, asker, body, { queries, form });
    const { isVisible } = manageableBy(visitor.snapshot, visitor.actor);
    const isSeen = (found.query?.accesses ?? []).every(({ database }) => isVisible(database));
    if (!isSeen) throw new Refusal("role_insufficient");
    return sendCheck(c, { fields }, found);
  },
};

function newPassword(filled: Filled, label: string) {
  return field(filled, {
    ...{ name: "new_password", label, hint: "At least 8 characters; hand it over in private" },
    ...{ type: "password", autocomplete: "new-password", more: required },
  });
}

async function newHash(c: ConsoleRequest): Promise<string> {
  const { gateway, listener, form, session } = c.var;
  const password = form.get("new_password") ?? "";
  gateway.passwordRule(password);
  const { hashing, costs } = gateway.login;
  const client = hashClientOf(listener.originOf(c.env.incoming), session?.username);
  return hashing.run([costs], client, (derive) => hashPassword(password, costs, { derive }));
}

function actionOf(name: string | undefined): AccountAction {
  const [, action] = Object.entries(accountActions).find(([known]) => known === name) ?? [];
  if (action === undefined) throw new Refusal("not_found");
  return action;
}

const act: ConsoleForm = {
  start: ({ req }) => new Map(Object.entries(req.query())),
  require(c, fields) {
    const visitor = visitorOf(c);
    actionOf(fields.get("action"));
    requireAdministrator(visitor.snapshot, visitor.actor);
    requireManageable(visitor, fields.get("user") ?? "");
  },
  send(c, { fields, failure }) {
    const [username = "", name = ""] = [fields.get("user"), fields.get("action")];
    const { form, needsPassword } = actionOf(name);
    const { title, sentence, button, isDangerous } = form;
    const filled = { fields: new Map(), failure };
    return sendForm(c, filled, {
      ...{ username, sentence, title: `${title} ${username}`, action: "/access/act" },
      heading: html`${title} <bdi>${username}</bdi>`,
      listsSeen: true,
      form: html`${hidden("action", name)}${needsPassword && newPassword(filled, "New password")}`,
      button: html`<button class="${isDangerous ? "danger" : "primary"}">${button}</button>`,
    });
  },
  async submit(c, fields) {
    const [username = "", name = ""] = [fields.get("user"), fields.get("action")];
    const { plan, needsPassword } = actionOf(name);
    // Users change their own password elsewhere, with the old one.
    const judged: typeof plan = (current, actor, ...given) => {
      requireAdministrator(current, actor);
      return plan(current, actor, ...given);
    };
    const { snapshot, actor } = visitorOf(c);
    if (needsPassword) judged(snapshot, actor, { username }, c.var.gateway.configuration);
    const input = { username, ...(needsPassword ? { passwordHash: await newHash(c) } : {}) };
    await makeChange(c, { plan: judged }, input);
    return name === "remove" ? "/access" : pathOf("/access/user", { user: username });
  },
};

function newUserOf({ gateway, form }: ConsoleRequest["var"]) {
  const at = (name: string) => (form.get(name) ?? "").trim();
  const password = form.get("new_password") ?? "";
  const { data, error } = bodies.addUser.safeParse({
    ...{ username: at("user"), email: at("email") || undefined, password },
    ...{ role: at("role"), database: at("database") },
  });
  const wrong = new Map<string, string>();
  for (const { path, message } of error?.issues ?? [])
    wrong.set(path[0] === "username" ? "user" : String(path[0]), message);
  try {
    gateway.passwordRule(password);
  } catch (error) {
    if (!(error instanceof Refusal)) throw error;
    wrong.set("new_password", error.message);
  }
  if (wrong.size > 0 || data === undefined) throw invalidFields(wrong);
  const { username, email, role, database = "" } = data;
  return { username, email: email ?? undefined, grant: { database, role } };
}

const addUser: ConsoleForm = {
  start: () => new Map([["role", "ReadOnly"]]),
  require(c) {
    if (!visitorOf(c).isManager) throw new Refusal("role_insufficient");
  },
  send: (c, filled) =>
    sendForm(c, filled, {
      ...{ title: "Add a user", heading: html`Add a user`, action: "/access/new" },
      form: html`<div class="group">
${field(filled, { name: "user", label: "Username", hint: "1 to 64 of letters, digits, . _ - @", more: required })}
${field(filled, { name: "email", label: "Email", hint: "Optional", type: "email" })}
${field(filled, { name: "database", label: "Database", hint: "A name, or * for every database", more: required })}
${field(filled, { name: "role", label: "Role", values: roles })}
</div>
${newPassword(filled, "First password")}`,
      button: html`<button class="primary">Add this user</button>`,
    }),
  async submit(c) {
    const user = newUserOf(c.var);
    const { snapshot, actor } = visitorOf(c);
    actions.addUser.plan(snapshot, actor, user, c.var.gateway.configuration);
    await makeChange(c, actions.addUser, { ...user, passwordHash: await newHash(c) });
    return pathOf("/access/user", { user: user.username });
  },
};

/** Tables with more columns get a text field instead of boxes. */
const MOST_BOXES = 40;

async function sendEntry(c: ConsoleRequest, filled: Filled): Promise<Response> {
  const { fields } = filled;
  const at = (name: string) => fields.get(name)?.trim() ?? "";
  const username = fields.get("user") ?? "";
  const { actor } = visitorOf(c);
  const names = await c.var.namesOffered(actor, at("database"), at("table"));
  const isListed = names.columns.length > 0 && names.columns.length <= MOST_BOXES;
  const nothing = isListed ? "None chosen" : "Empty";
  const columns = (name: string, label: string, hint: string, none?: string) =>
    isListed
      ? boxes(filled, { name, label, hint, offered: names.columns }, none)
      : field(filled, {
          ...{ name, label },
          hint: `${hint}; separate names with commas${none ? `; - for ${none}` : ""}`,
        });
  const isNarrow = [...lists, ...counts, "row_filter", "look"].some((name) => fields.get(name));
  const form = html`<div class="group">
${field(filled, { name: "database", label: "Database", hint: "A name, or * for every database", more: required, offered: names.databases })}
${field(filled, { name: "table", label: "Table", hint: "Empty for all; a name, or a prefix such as customer_*", offered: names.tables })}
${field(filled, { name: "role", label: "Role", values: entryRoles })}
${field(filled, { name: "expires", label: "Ends, in UTC", type: "datetime-local", hint: "Empty for no end" })}
</div>
${checkbox("beside", fields.get("beside") === "yes", "Keep the other entry for this place, if one of them ends and one does not")}
<details${isNarrow && html` open`}><summary>Narrow it</summary>
<p class="hint">For ReadWrite and ReadOnly. An empty field sets no limit.</p>
<div class="${isListed ? "after" : "group"}">
${columns("columns", "Columns that may be read", `${nothing}: all`)}
${columns("writable_columns", "Columns that may be written", `${nothing}: those that may be read`, "no column")}
${columns("require_where", "Required in the condition", "A change must compare these columns by = or IN")}
</div>
<div class="group">
${field(filled, { name: "max_rows", label: "Row limit", hint: "Rows of one answer" })}
${field(filled, { name: "max_changes", label: "Change limit", hint: "Rows that one query may change" })}
${field(filled, { name: "require_approval", label: "Needs approval", hint: "Such as DELETE, UPDATE" })}
${field(filled, { name: "approvers", label: "Approvers", hint: "Usernames; empty for everybody who may grant there" })}
</div>
${field(filled, { name: "row_filter", type: "area", label: "Row filter", hint: "One condition a line, all must hold: tenant = @tenant, size < 5, region IN (eu, us)" })}
</details>`;
  const look = html` <button name="look" value="yes" formnovalidate>List tables and columns</button>`;
  return sendForm(c, filled, {
    ...{ username, form, title: `Grant to ${username}`, action: "/access/entry" },
    heading: html`Grant to <bdi>${username}</bdi>`,
    sentence:
      "This entry replaces what is held for the same place. It is in force at once, for issued tokens too.",
    button: html`<button class="primary">Give this entry</button>${names.databases.length > 0 && look}`,
  });
}

const lists = ["columns", "writable_columns", "require_where", "require_approval", "approvers"];
const counts = ["max_rows", "max_changes"];

function entryOf(form: Fields): Grant {
  const at = (name: string) => (form.get(name) ?? "").trim();
  const given = (names: readonly string[]) => names.filter((name) => at(name) !== "");
  // Browsers send a moment without a time zone, meant as UTC, and seconds only if there are some.
  const [moment, seconds = ":00"] = /^\d{4}-\d\d-\d\dT\d\d:\d\d(:\d\d)?$/.exec(at("expires")) ?? [];
  const expires = moment === undefined ? at("expires") : `${moment.slice(0, 16)}${seconds}Z`;
  const lines = at("row_filter")
    .split(/\r?\n/)
    .filter((line) => line.trim() !== "");
  const record: Record<string, unknown> = {
    ...{ username: at("user"), database: at("database"), role: at("role") },
    ...(at("table") !== "" && { tables: [at("table")] }),
    ...(expires !== "" && { expires }),
    ...Object.fromEntries(
      given(lists).map((name) => [name, at(name) === "-" ? [] : listedIn(at(name))]),
    ),
    ...Object.fromEntries(given(counts).map((name) => [name, Number(at(name))])),
    ...(lines.length > 0 && { row_filter: lines.map(readCondition) }),
  };
  const wrong = new Map<string, string>();
  const note: Report = ({ key = "user", reason }) =>
    wrong.set(
      key === "tables" ? "table" : key,
      reason.replace(/^`\w+` ./, (start) => start.slice(-1).toUpperCase()),
    );
  const grant = readGrant(record, 0, note);
  if (grant !== undefined && wrong.size === 0) return grant;
  // Limits are not parsed if the place or the role is wrong.
  const role = entryRoles.find((one) => one === record.role) ?? "ReadOnly";
  readGrant({ ...record, role, username: "anybody", database: EVERY_DATABASE }, 0, note);
  const bad = lines.find((line) => readCondition(line) === undefined);
  if (bad !== undefined) {
    wrong.set(
      "row_filter",
      `\`${bad.trim()}\` is not a condition such as tenant = @tenant. Each takes a line of its own; quote text that is not one word.`,
    );
  }
  throw invalidFields(wrong);
}

function fieldsOf(place: Fields, held: Grant | undefined): Fields {
  if (held === undefined) return new Map([["role", "ReadOnly"], ...place]);
  const { tables: _, ...keys } = viewEntry(held);
  const texts = Object.entries(keys).map(
    ([key, value]) =>
      [key, Array.isArray(value) ? value.join(", ") || "-" : String(value)] as const,
  );
  const fields = new Map([...texts, ...place]);
  const { rowFilter, expires } = held;
  if (rowFilter !== undefined) fields.set("row_filter", rowFilter.map(writeCondition).join("\n"));
  if (expires !== undefined) fields.set("expires", writtenTime(expires).replace("Z", ""));
  return fields;
}

function placeIn(c: ConsoleRequest): Map<string, string> {
  return new Map(["user", "database", "table"].map((name) => [name, c.req.query(name) ?? ""]));
}

const entry: ConsoleForm = {
  start(c) {
    const { snapshot, actor } = visitorOf(c);
    const place = placeIn(c);
    const [username = "", database = "", table] = place.values();
    const role = c.req.query("role");
    if (role !== undefined) place.set("role", role);
    const { isVisible } = manageableBy(snapshot, actor);
    const grants = grantsOf(snapshot, username);
    const held = isVisible(database) ? entriesAt(grants, database, table || undefined) : [];
    // A permanent entry and a temporary one may exist side by side.
    const isTemporary = c.req.query("temporary") !== undefined;
    const meant = held.find(({ expires }) => (expires !== undefined) === isTemporary) ?? held[0];
    if (held.length > 1) place.set("beside", "yes");
    return fieldsOf(place, meant);
  },
  require(c, fields) {
    const username = fields.get("user") ?? "";
    if (!mayGrantTo(visitorOf(c), username)) throw new Refusal("user_not_found");
  },
  send: sendEntry,
  async submit(c, fields) {
    // The button that looks up names changes nothing.
    if (fields.get("look") === "yes") return sendEntry(c, { fields });
    const username = fields.get("user") ?? "";
    const isBeside = fields.get("beside") === "yes";
    const grant = entryOf(fields);
    await makeChange(c, actions.grant, { username, grant, isWhole: true, isBeside });
    return pathOf("/access/user", { user: username });
  },
};

const end: ConsoleForm = {
  start: placeIn,
  require: (c, fields) => requireManageable(visitorOf(c), fields.get("user") ?? ""),
  send(c, filled) {
    const at = (name: string) => filled.fields.get(name) ?? "";
    const [username, database, table] = [at("user"), at("database"), at("table")];
    const place = table === "" ? database : `${database}.${table}`;
    return sendForm(c, filled, {
      ...{ username, title: `End the entry for ${place}`, action: "/access/end", listsSeen: true },
      heading: html`End the entry of <bdi>${username}</bdi> for <code>${place}</code>?`,
      sentence:
        "It ends at once, for tokens that are out as well. A wider entry decides from then on, if there is one.",
      form: html`${hidden("database", database)}${hidden("table", table)}`,
      button: html`<button class="danger">End this entry</button>`,
    });
  },
  async submit(c, fields) {
    const [username = "", database = ""] = [fields.get("user"), fields.get("database")];
    const table = fields.get("table") || undefined;
    await makeChange(c, actions.revoke, { username, database, table });
    return pathOf("/access/user", { user: username });
  },
};

export const accessForms = {
  "/access/check": check,
  "/access/act": act,
  "/access/new": addUser,
  "/access/entry": entry,
  "/access/end": end,
};

const TIMEOUT_MS = 2000;
const LARGEST_ANSWER_BYTES = 4 * 1024 * 1024;
const OFFERED = 200;
const DESCRIBED = 5;

const origin = { via: "query" } as const;

/** Suggests names on which a user may grant, as far as the upstream returns them in time. */
export function namesOffered({ access, routing, headers }: Gateway) {
  const source = createSchemaSource<Subject>({
    places: routing.places.map(({ holds, group }) => ({
      holds,
      get: ({ username }, path, signal) =>
        group.ask({
          ...{ user: username, path, body: Buffer.alloc(0), isRead: true, signal },
          fields: fieldLines({ accept: "application/json", ...credentialOf({ headers }) }),
          largest: LARGEST_ANSWER_BYTES,
          hold: () => {},
        }),
    })),
    whyUnseen: (actor, database) =>
      maySeeGrants(access.snapshot, actor, database)
        ? whyUnseen(access.snapshot, actor, database, origin)
        : "no_grant",
  });

  async function columnsOf(actor: Subject, database: string, table: string, signal: AbortSignal) {
    const seen = seeTable(access.snapshot, actor, database, table, origin);
    if (typeof seen === "string") return [];
    const { columns } = await source.describeTable(actor, database, table, signal);
    return columns.map(({ name }) => name).filter((name) => seen.sees(name));
  }

  return async (actor: Subject, database: string, table: string) => {
    const signal = AbortSignal.timeout(TIMEOUT_MS);
    const none = (error: unknown) => {
      if (error instanceof Refusal) return [];
      throw error;
    };
    const isNamed = database !== "" && database !== "*";
    const [databases, all] = await Promise.all([
      source.listDatabases(actor, signal).catch(none),
      isNamed ? source.listTables(actor, database, signal).catch(none) : [],
    ]);
    const tables = all.filter(
      (name) => typeof seeTable(access.snapshot, actor, database, name, origin) !== "string",
    );
    const meant = tables.filter((name) =>
      table.endsWith("*") ? name.startsWith(table.slice(0, -1)) : name === table,
    );
    const columns = await Promise.all(
      meant.slice(0, DESCRIBED).map((name) => columnsOf(actor, database, name, signal).catch(none)),
    );
    return {
      databases: databases.slice(0, OFFERED),
      tables: tables.slice(0, OFFERED),
      // The form separates names with commas.
      columns: [...new Set(columns.flat())].filter((name) => !name.includes(",")).slice(0, OFFERED),
    };
  };
}
