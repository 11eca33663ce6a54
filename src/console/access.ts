import {
  manageableBy,
  maySeeGrants,
  requireAdministrator,
  requireManager,
} from "../access/administration.ts";
import { entriesAt, entriesIn } from "../access/entries.ts";
import { readCondition, viewEntry, writeCondition, writtenTime } from "../access/entry-view.ts";
import { type Grant, placeOf } from "../access/grant.ts";
import { seeTable, visibilityDenial } from "../access/policy.ts";
import { entryRoles, type Report, readGrant } from "../access/records.ts";
import { decidingEntry } from "../access/rights.ts";
import {
  type EntryRole,
  EVERY_DATABASE,
  groupOf,
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
import { hashNewPassword } from "../identity/login.ts";
import { type Html, html, type Part } from "../pages/html.ts";
import { Refusal } from "../refusal.ts";
import { fieldLines } from "../upstream/headers.ts";
import { createSchemaSource } from "../upstream/schema-source.ts";
import {
  type ConsoleForm,
  invalidFields,
  makeChange,
  mayGrantTo,
  requireManageable,
  sendForm,
  visibleEntries,
} from "./changes.ts";
import {
  accountMark,
  boxes,
  checkbox,
  dim,
  expiry,
  type Fields,
  type FormState,
  field,
  groupRows,
  hidden,
  hint,
  limitsOf,
  linkButton,
  mark,
  parseList,
  pathOf,
  postForm,
  required,
  roleBadge,
  table,
  unseen,
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
      const found = decidingEntry(snapshot, { username }, database, rest.join("."), now);
      return found !== undefined && isVisible(found.grant.database) ? [found.grant] : [];
    }
    const entries = visibleEntries(visitor, username);
    if (database === "") return entries;
    return entries.filter((one) => [database, EVERY_DATABASE].includes(one.database));
  }
  const fits = (username: string) =>
    username.toLowerCase().includes(user.toLowerCase()) &&
    (database === "" || entriesOf(username).length > 0);
  // One name more than a page holds shows whether there is another page.
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

  function rowsOf(username: string): Part[][] {
    const entries = entriesOf(username);
    const isUser = groupOf(username) === undefined;
    const mark = isUser && accountMark(snapshot.users.get(username));
    const name = html`${userLink(username)} ${mark}`;
    const rows = entries
      .slice(0, SHOWN)
      .map((grant) => [
        html`<code>${placeOf(grant)}</code>`,
        ...[roleBadge(grant.role), limitsOf(grant), expiry(grant, now)],
      ]);
    const more = entries.length - SHOWN;
    if (rows.length === 0) rows.push([dim("no grants")]);
    if (more > 0) {
      const text = html`and ${more} more${unseen(" entries of ", username)}`;
      const path = pathOf("/access/user", { user: username });
      rows.push([isUser ? html`<a href="${path}">${text}</a>` : text]);
    }
    return groupRows(name, html`<bdi>${username}</bdi>`, rows);
  }
  const none = [
    after === undefined ? "No matching users that you may manage." : "No more users.",
    isExternalUsername(user) &&
      html` <a href="${pathOf("/access/entry", { user })}">Grant access to <bdi>${user}</bdi></a>.`,
    (user !== "" || place !== "") && html` <a href="/access">Show all users</a>.`,
  ];
  const columns = ["User", "Where", "Role", "Limits", ["Expires", "moment"]] as const;
  const state = { fields: new Map(Object.entries({ user, place })) };
  const pages = [
    after !== undefined && linkButton("First page", "/access", { user, place }),
    names.length > PAGE &&
      linkButton("More users", "/access", { user, place, after: shown.at(-1) }),
  ];
  const rule =
    rest.length > 0
      ? html`Each row is the entry that currently applies to <code>${place}</code>.`
      : html`The most specific entry applies to a table: its name, then a pattern, then its database, then <code>*</code>.`;
  return sendPage(c, {
    title: "Access",
    section: "Access",
    actions: [
      linkButton("Test a query", "/access/check"),
      linkButton("Add a user", "/access/new", {}, " primary"),
    ],
    content: html`<form method="get" action="/access" class="tools" role="search">
${field(state, { name: "user", label: "User contains", more: html` maxlength="128"` })}
${field(state, { name: "place", label: "Database or table", more: html` maxlength="127" placeholder="main, or main.tickets"` })}
<button>Show</button>
</form>
${table("Users and grants", columns, shown.flatMap(rowsOf), none)}
${pages.some(Boolean) && html`<p class="actions">${pages}</p>`}
<p class="quiet">${rule} Access version <code>${snapshot.version}</code>.</p>`,
  });
}

const rights: Readonly<Record<EntryRole, string>> = {
  Owner: "all operations and grants",
  DbAdmin: "rows, tables, and grants up to ReadWrite",
  ReadWrite: "read and change rows",
  ReadOnly: "read rows",
  None: "no access",
};

function entryActions(grant: Grant): Html {
  const { username, database, tables = [], expires } = grant;
  if (tables.length > 1) return hint("covers several tables; edit it in the access file");
  const place = { user: username, database, table: tables[0] };
  const temporary = expires === undefined ? undefined : "yes";
  const what = unseen(" the entry for ", placeOf(grant));
  return html`<a href="${pathOf("/access/entry", { ...place, temporary })}">Change${what}</a> <a href="${pathOf("/access/end", place)}">Revoke${what}</a>`;
}

export function showUser(c: ConsoleRequest): Response {
  const visitor = visitorOf(c);
  const { snapshot, isAdministrator } = visitor;
  const username = c.req.query("user") ?? "";
  requireManageable(visitor, username);
  const user = snapshot.users.get(username);
  const link = (label: string, path: string, kind?: string) =>
    linkButton(label, path, { user: username }, kind);
  const act = (action: string, label: string) =>
    linkButton(label, "/access/act", { user: username, action });
  const isExternal = isExternalUsername(username);
  const manage = html`<h2>Account</h2><p class="actions">${!isExternal && act("password", "Set password")}${
    user?.disabled ? act("enable", "Enable") : act("disable", "Disable")
  }${user && act("remove", "Remove")}</p>`;
  const grants = table(
    `Grants of ${username}`,
    ["Where", "Role", "Limits", ["Expires", "moment"], ["Action", "moment"]],
    visibleEntries(visitor, username).map((grant) => [
      html`<code>${placeOf(grant)}</code>`,
      html`${roleBadge(grant.role)}${hint(rights[grant.role])}`,
      limitsOf(grant),
      expiry(grant, Date.now()),
      entryActions(grant),
    ]),
    "No grants. This user has no access.",
  );
  return sendPage(c, {
    title: username,
    section: "Access",
    path: html`<a href="/access">Access</a>`,
    heading: html`<bdi>${username}</bdi> ${accountMark(user)}`,
    actions: [
      isAdministrator && link("Sessions", "/sessions"),
      link("Test a query", "/access/check"),
      link("Grant access", "/access/entry", " primary"),
    ],
    content: html`${user?.email !== undefined && html`<p class="quiet"><bdi>${user.email}</bdi></p>`}
<h2>Grants</h2>
${grants}
${isAdministrator && (user !== undefined || isExternal) && manage}`,
  });
}

function checkResult({ allowed, code, message, body, query, decided }: Outcome): Html {
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
  const columns = ["Operation", "Where", "Decided by", "Boundary", "Reason", "Added conditions"];
  const verdict = allowed ? mark(true, "Allowed") : mark(false, html`Denied: <code>${code}</code>`);
  return html`<section aria-live="polite"><h2>Result</h2><p>${verdict}</p>
${message !== undefined && html`<p>${message}</p>`}
${rows.length > 0 && table("Decisions", columns, rows)}
${body && html`<h3>Forwarded query</h3><pre>${body.toString()}</pre>`}</section>`;
}

function sendCheck(c: ConsoleRequest, state: FormState, outcome?: Outcome): Response {
  const form = html`<div class="group">
${field(state, { name: "user", label: "User", more: required })}
${field(state, { name: "via", label: "Interface", values: ["query", "mcp"] })}
</div>
${field(state, { name: "query", type: "area", label: "Query", hint: 'JSON, such as {"Select": {"database": "main", "from": "users", "columns": ["id"]}}' })}
<div class="actions"><button class="primary">Test</button></div>`;
  return sendPage(c, {
    ...{ title: "Test a query", section: "Access", failure: state.failure },
    path: html`<a href="/access">Access</a>`,
    content: html`<p>Shows how the gateway would currently decide. Nothing is sent to a database.</p>
${postForm(visitorOf(c).csrf, "/access/check", "sheet narrow", form)}
${outcome && checkResult(outcome)}`,
  });
}

function requireManagingVisitor(c: ConsoleRequest): void {
  const { snapshot, actor } = visitorOf(c);
  requireManager(snapshot, actor);
}

const check: ConsoleForm = {
  start: ({ req }) => new Map([["user", req.query("user") ?? ""]]),
  require: requireManagingVisitor,
  send: sendCheck,
  async submit(c, fields) {
    const { queries, configuration } = c.var.gateway;
    const visitor = visitorOf(c);
    const user = fields.get("user") ?? "";
    requireManageable(visitor, user);
    const caller = { user, via: fields.get("via") === "mcp" ? "mcp" : "query" } as const;
    const body = Buffer.from(fields.get("query") ?? "");
    const form = configuration.upstream.query_form;
    const outcome = outcomeOf(visitor.snapshot, caller, body, { queries, form });
    const accesses = outcome.query?.accesses ?? [];
    if (!accesses.every(({ database }) => visitor.maySee(database)))
      throw new Refusal("role_insufficient");
    return sendCheck(c, { fields }, outcome);
  },
};

function newPassword(state: FormState, label: string) {
  return field(state, {
    ...{ name: "new_password", label, hint: "At least 8 characters. Share it privately." },
    ...{ type: "password", autocomplete: "new-password", more: required },
  });
}

async function readNewHash(c: ConsoleRequest): Promise<string> {
  const { gateway, listener, form, session } = c.var;
  const password = form.get("new_password") ?? "";
  gateway.passwordRule(password);
  const origin = listener.originOf(c.env.incoming);
  return hashNewPassword(gateway.login, origin, session?.username, password);
}

function actionOf(fields: Fields): AccountAction {
  const [, action] =
    Object.entries(accountActions).find(([name]) => name === fields.get("action")) ?? [];
  if (action === undefined) throw new Refusal("not_found");
  return action;
}

const act: ConsoleForm = {
  start: ({ req }) => new Map(Object.entries(req.query())),
  require(c, fields) {
    const visitor = visitorOf(c);
    actionOf(fields);
    requireAdministrator(visitor.snapshot, visitor.actor);
    requireManageable(visitor, fields.get("user") ?? "");
  },
  send(c, { fields, failure }) {
    const username = fields.get("user") ?? "";
    const { form, needsPassword } = actionOf(fields);
    const { title, sentence, button, isDangerous } = form;
    const state = { fields: new Map(), failure };
    return sendForm(c, state, {
      ...{ username, sentence, title: `${title} ${username}`, action: "/access/act" },
      heading: html`${title} <bdi>${username}</bdi>`,
      listsState: true,
      form: html`${hidden("action", fields.get("action") ?? "")}${needsPassword && newPassword(state, "New password")}`,
      button: html`<button class="${isDangerous ? "danger" : "primary"}">${button}</button>`,
    });
  },
  async submit(c, fields) {
    const username = fields.get("user") ?? "";
    const action = actionOf(fields);
    const { snapshot, actor } = visitorOf(c);
    action.plan(snapshot, actor, { username }, c.var.gateway.configuration);
    const passwordHash = action.needsPassword && (await readNewHash(c));
    await makeChange(c, action, { username, ...(passwordHash && { passwordHash }) });
    const isRemoved = fields.get("action") === "remove";
    return isRemoved ? "/access" : pathOf("/access/user", { user: username });
  },
};

function newUserOf({ gateway, form }: ConsoleRequest["var"]) {
  const at = (name: string) => (form.get(name) ?? "").trim();
  const password = form.get("new_password") ?? "";
  const { data, error } = bodies.addUser.safeParse({
    ...{ username: at("user"), email: at("email") || undefined, password },
    ...{ role: at("role"), database: at("database") },
  });
  const wrong = new Map(
    error?.issues.map(({ path: [key], message }) => [
      key === "username" ? "user" : String(key),
      message,
    ]),
  );
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
  require: requireManagingVisitor,
  send: (c, state) =>
    sendForm(c, state, {
      ...{ title: "Add a user", action: "/access/new" },
      form: html`<div class="group">
${field(state, { name: "user", label: "Username", hint: "1 to 64 letters, digits or . _ - @", more: required })}
${field(state, { name: "email", label: "Email", hint: "Optional", type: "email" })}
${field(state, { name: "database", label: "Database", hint: "A name, or * for all databases", more: required })}
${field(state, { name: "role", label: "Role", values: roles })}
</div>
${newPassword(state, "Initial password")}`,
      button: html`<button class="primary">Add user</button>`,
    }),
  async submit(c) {
    const user = newUserOf(c.var);
    const { snapshot, actor } = visitorOf(c);
    actions.addUser.plan(snapshot, actor, user, c.var.gateway.configuration);
    await makeChange(c, actions.addUser, { ...user, passwordHash: await readNewHash(c) });
    return pathOf("/access/user", { user: user.username });
  },
};

/** Tables with more columns get a text field instead of boxes. */
const MOST_BOXES = 40;
const lists = ["columns", "writable_columns", "require_where", "require_approval", "approvers"];
const counts = ["max_rows", "max_changes"];

/** Joins check boxes: `columns:id` and `columns:name` become `columns`. */
function gatherBoxes(form: Fields): Fields {
  const gathered = new Map<string, string>();
  for (const [key, value] of form) {
    const [, name = key, box] = /^(\w+):(.+)$/s.exec(key) ?? [];
    const before = gathered.get(name);
    gathered.set(name, box === undefined ? value : before ? `${before}, ${box}` : box);
  }
  return gathered;
}

async function sendEntry(c: ConsoleRequest, { failure, ...given }: FormState): Promise<Response> {
  const fields = gatherBoxes(given.fields);
  const state = { fields, failure };
  const at = (name: string) => fields.get(name)?.trim() ?? "";
  const username = fields.get("user") ?? "";
  const names = await c.var.suggestNames(visitorOf(c).actor, at("database"), at("table"));
  const isListed = names.columns.length > 0 && names.columns.length <= MOST_BOXES;
  const columns = (name: string, label: string, hint: string, none?: string) =>
    isListed
      ? boxes(state, { name, label, hint, offered: names.columns }, none)
      : field(state, {
          ...{ name, label },
          hint: `${hint}. Separate names with commas${none ? `, or enter - for ${none}.` : "."}`,
        });
  const isOpen = [...lists, ...counts, "row_filter", "look"].some((name) => fields.get(name));
  const form = html`<div class="group">
${field(state, { name: "database", label: "Database", hint: "A name, or * for all databases", more: required, offered: names.databases })}
${field(state, { name: "table", label: "Table", hint: "Empty for all; a name, or a prefix such as customer_*", offered: names.tables })}
${field(state, { name: "role", label: "Role", values: entryRoles })}
${field(state, { name: "expires", label: "Expires (UTC)", type: "datetime-local", hint: "Empty: never" })}
</div>
${checkbox("beside", fields.get("beside") === "yes", "Keep the other entry if only one of the two expires")}
<details${isOpen && html` open`}><summary>Limits</summary>
<p class="hint">Only for ReadWrite and ReadOnly. An empty field sets no limit.</p>
<div class="${isListed ? "after" : "group"}">
${columns("columns", "Readable columns", "None: all")}
${columns("writable_columns", "Writable columns", "None: the readable ones", "no column")}
${columns("require_where", "Required conditions", "A change must compare these columns with = or IN")}
</div>
<div class="group">
${field(state, { name: "max_rows", label: "Row limit", hint: "Rows in one response" })}
${field(state, { name: "max_changes", label: "Change limit", hint: "Rows changed by one query" })}
${field(state, { name: "require_approval", label: "Require approval", hint: "Such as DELETE, UPDATE" })}
${field(state, { name: "approvers", label: "Approvers", hint: "Usernames. Empty: everyone who may grant there" })}
</div>
${field(state, { name: "row_filter", type: "area", label: "Row filter", hint: "One condition per line, all must hold: tenant = @tenant, size < 5, region IN (eu, us)" })}
</details>`;
  const look = html` <button name="look" value="yes" formnovalidate>List tables and columns</button>`;
  return sendForm(c, state, {
    ...{ username, form, title: `Grant access to ${username}`, action: "/access/entry" },
    heading: html`Grant access to <bdi>${username}</bdi>`,
    sentence:
      "This entry replaces the one for the same database or table. It takes effect immediately, also for issued tokens.",
    button: html`<button class="primary">Save entry</button>${names.databases.length > 0 && look}`,
  });
}

function entryOf(form: Fields): Grant {
  const at = (name: string) => (form.get(name) ?? "").trim();
  const given = (names: readonly string[]) => names.filter((name) => at(name) !== "");
  // Browsers send a moment without a time zone, meant as UTC, and seconds only if there are some.
  const [moment, seconds = ":00"] = /^\d{4}-\d\d-\d\dT\d\d:\d\d(:\d\d)?$/.exec(at("expires")) ?? [];
  const expires = moment === undefined ? at("expires") : `${moment.slice(0, 16)}${seconds}Z`;
  const lines = at("row_filter")
    .split(/\s*\n\s*/)
    .filter(Boolean);
  const record: Record<string, unknown> = {
    ...{ username: at("user"), database: at("database"), role: at("role") },
    ...(at("table") !== "" && { tables: [at("table")] }),
    ...(expires !== "" && { expires }),
    ...Object.fromEntries(
      given(lists).map((name) => [name, at(name) === "-" ? [] : parseList(at(name))]),
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
    const message = `\`${bad}\` is not a condition such as tenant = @tenant. Write one condition per line, and quote text that is more than one word.`;
    wrong.set("row_filter", message);
  }
  throw invalidFields(wrong);
}

function fieldsOf(place: Fields, entry: Grant | undefined): Fields {
  if (entry === undefined) return new Map([["role", "ReadOnly"], ...place]);
  const { tables: _, ...keys } = viewEntry(entry);
  const texts = Object.entries(keys).map(
    ([key, value]) =>
      [key, Array.isArray(value) ? value.join(", ") || "-" : String(value)] as const,
  );
  const fields = new Map([...texts, ...place]);
  const { rowFilter, expires } = entry;
  if (rowFilter !== undefined) fields.set("row_filter", rowFilter.map(writeCondition).join("\n"));
  if (expires !== undefined) fields.set("expires", writtenTime(expires).replace("Z", ""));
  return fields;
}

function placeIn(c: ConsoleRequest): Map<string, string> {
  return new Map(["user", "database", "table"].map((name) => [name, c.req.query(name) ?? ""]));
}

const entry: ConsoleForm = {
  start(c) {
    const { snapshot, maySee } = visitorOf(c);
    const place = placeIn(c);
    const [username = "", database = "", table] = place.values();
    const role = c.req.query("role");
    if (role !== undefined) place.set("role", role);
    const grants = grantsOf(snapshot, username);
    const entries = maySee(database) ? entriesAt(grants, database, table || undefined) : [];
    // A permanent entry and a temporary one may exist side by side.
    const isTemporary = c.req.query("temporary") !== undefined;
    const found = entries.find(({ expires }) => (expires !== undefined) === isTemporary);
    if (entries.length > 1) place.set("beside", "yes");
    return fieldsOf(place, found ?? entries[0]);
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
    const keepsOther = fields.get("beside") === "yes";
    const grant = entryOf(gatherBoxes(fields));
    await makeChange(c, actions.grant, { username, grant, replacesLimits: true, keepsOther });
    return pathOf("/access/user", { user: username });
  },
};

const revoke: ConsoleForm = {
  start: placeIn,
  require: (c, fields) => requireManageable(visitorOf(c), fields.get("user") ?? ""),
  send(c, state) {
    const at = (name: string) => state.fields.get(name) ?? "";
    const [username, database, table] = [at("user"), at("database"), at("table")];
    const place = table === "" ? database : `${database}.${table}`;
    return sendForm(c, state, {
      ...{ username, title: `Revoke access to ${place}`, action: "/access/end", listsState: true },
      heading: html`Revoke the access of <bdi>${username}</bdi> to <code>${place}</code>?`,
      sentence:
        "Takes effect immediately, also for issued tokens. If there is a broader entry, it applies instead.",
      form: html`${hidden("database", database)}${hidden("table", table)}`,
      button: html`<button class="danger">Revoke</button>`,
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
  "/access/end": revoke,
};

const TIMEOUT_MS = 2000;
const LARGEST_ANSWER_BYTES = 4 * 1024 * 1024;
const SUGGESTED = 200;
const DESCRIBED = 5;

const origin = { via: "query" } as const;

/** Suggests names on which a user may grant, as far as the upstream returns them in time. */
export function nameSuggestions({ access, routing, headers }: Gateway) {
  const source = createSchemaSource<Subject>({
    upstreams: routing.upstreams.map(({ holds, group }) => ({
      holds,
      get: ({ username }, path, signal) =>
        group.ask({
          ...{ user: username, path, body: Buffer.alloc(0), isRead: true, signal },
          fields: fieldLines({ accept: "application/json", ...credentialOf({ headers }) }),
          largest: LARGEST_ANSWER_BYTES,
          hold: () => {},
        }),
    })),
    visibilityDenial: (actor, database) =>
      maySeeGrants(access.snapshot, actor, database)
        ? visibilityDenial(access.snapshot, actor, database, origin)
        : "no_grant",
  });
  const none = (error: unknown) => {
    if (error instanceof Refusal) return [];
    throw error;
  };

  return async (actor: Subject, database: string, table: string) => {
    const signal = AbortSignal.timeout(TIMEOUT_MS);
    const isNamed = database !== "" && database !== EVERY_DATABASE;
    const [databases, all] = await Promise.all([
      source.listDatabases(actor, signal).catch(none),
      isNamed ? source.listTables(actor, database, signal).catch(none) : [],
    ]);
    const tables = all.flatMap((name) => {
      const seen = seeTable(access.snapshot, actor, database, name, origin);
      return typeof seen === "string" ? [] : [{ name, ...seen }];
    });
    const matches = (name: string) =>
      table.endsWith("*") ? name.startsWith(table.slice(0, -1)) : name === table;
    const columns = await Promise.all(
      tables
        .filter(({ name }) => matches(name))
        .slice(0, DESCRIBED)
        .map(async ({ name, sees }) => {
          const described = source.describeTable(actor, database, name, signal);
          const columns = await described.then((found) => found.columns, none);
          return columns.map((column) => column.name).filter(sees);
        }),
    );
    return {
      databases: databases.slice(0, SUGGESTED),
      tables: tables.slice(0, SUGGESTED).map(({ name }) => name),
      // The form separates names with commas.
      columns: [...new Set(columns.flat())]
        .filter((name) => !name.includes(","))
        .slice(0, SUGGESTED),
    };
  };
}
