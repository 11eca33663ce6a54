/** The forms that change users and entries. */
import { manageableBy, requireAdministrator } from "../access/administration.ts";
import { entriesAt } from "../access/entries.ts";
import { readCondition, viewEntry, writeCondition, writtenTime } from "../access/entry-view.ts";
import type { Grant } from "../access/grant.ts";
import { entryRoles, type Report, readGrant } from "../access/records.ts";
import { EVERY_DATABASE, roles } from "../access/roles.ts";
import { grantsOf } from "../access/snapshot.ts";
import {
  type AccountAction,
  type AccountActionName,
  accountActions,
  actions,
  bodies,
} from "../administration/actions.ts";
import { hashClientOf } from "../identity/login.ts";
import { hashPassword } from "../identity/password.ts";
import { html } from "../pages/html.ts";
import { Refusal } from "../refusal.ts";
import {
  type Failure,
  failureOf,
  invalidFields,
  makeChange,
  mayGrantTo,
  requireManageable,
  sendForm,
} from "./changes.ts";
import {
  area,
  boxes,
  checkbox,
  choice,
  type Fields,
  type Filled,
  field,
  gatherBoxes,
  hidden,
  listedIn,
  pathOf,
  required,
} from "./frame.ts";
import { type ConsoleRequest, visitorOf } from "./visit.ts";

function toUser(c: ConsoleRequest, user: string): Response {
  return c.redirect(pathOf("/access/user", { user }), 303);
}

function newPassword(filled: Filled, label: string) {
  return field(filled, {
    ...{ name: "new_password", label, hint: "At least 8 characters; hand it over in private" },
    ...{ type: "password", autocomplete: "new-password", more: required },
  });
}

/** Hashes the password from a form. @throws Refusal if the password is unacceptable */
async function newHash(c: ConsoleRequest): Promise<string> {
  const { gateway, listener, form, session } = c.var;
  const password = form.get("new_password") ?? "";
  gateway.passwordRule(password);
  const { hashing, costs } = gateway.login;
  const client = hashClientOf(listener.originOf(c.env.incoming), session?.username);
  return hashing.run([costs], client, (derive) => hashPassword(password, costs, { derive }));
}

function isAction(text: string): text is AccountActionName {
  return Object.hasOwn(accountActions, text);
}

function actionOf(name = ""): AccountAction {
  if (!isAction(name)) throw new Refusal("not_found");
  return accountActions[name];
}

function sendAct(c: ConsoleRequest, from: Fields, failure?: Failure): Response {
  const [username = "", name = ""] = [from.get("user"), from.get("action")];
  const visitor = visitorOf(c);
  const { form, needsPassword } = actionOf(name);
  requireAdministrator(visitor.snapshot, visitor.actor);
  requireManageable(visitor, username);
  const { title, sentence, button, isDangerous } = form;
  const filled = { fields: new Map(), failure };
  return sendForm(c, filled, {
    ...{ username, sentence, title: `${title} ${username}`, action: "/access/act" },
    heading: html`${title} <bdi>${username}</bdi>`,
    listsSeen: true,
    form: html`${hidden("action", name)}${needsPassword && newPassword(filled, "New password")}`,
    button: html`<button class="${isDangerous ? "danger" : "primary"}">${button}</button>`,
  });
}

export function showAct(c: ConsoleRequest): Response {
  return sendAct(c, new Map(Object.entries(c.req.query())));
}

export async function act(c: ConsoleRequest): Promise<Response> {
  const { form, gateway } = c.var;
  const { plan, needsPassword } = actionOf(form.get("action"));
  const username = form.get("user") ?? "";
  // Users change their own password elsewhere, with the old one.
  const judged: typeof plan = (current, actor, ...given) => {
    requireAdministrator(current, actor);
    return plan(current, actor, ...given);
  };
  try {
    const { snapshot, actor } = visitorOf(c);
    if (needsPassword) judged(snapshot, actor, { username }, gateway.configuration);
    const input = { username, ...(needsPassword ? { passwordHash: await newHash(c) } : {}) };
    await makeChange(c, { plan: judged }, input);
  } catch (error) {
    return sendAct(c, form, failureOf(error));
  }
  return form.get("action") === "remove" ? c.redirect("/access", 303) : toUser(c, username);
}

function sendNew(c: ConsoleRequest, filled: Filled): Response {
  if (!visitorOf(c).isManager) throw new Refusal("role_insufficient");
  return sendForm(c, filled, {
    ...{ title: "Add a user", heading: html`Add a user`, action: "/access/new" },
    form: html`<div class="group">
${field(filled, { name: "user", label: "Username", hint: "1 to 64 of letters, digits, . _ - @", more: required })}
${field(filled, { name: "email", label: "Email", hint: "Optional", type: "email" })}
${field(filled, { name: "database", label: "Database", hint: "A name, or * for every database", more: required })}
${choice(filled, { name: "role", label: "Role" }, roles)}
</div>
${newPassword(filled, "First password")}`,
    button: html`<button class="primary">Add this user</button>`,
  });
}

export function showNew(c: ConsoleRequest): Response {
  return sendNew(c, { fields: new Map([["role", "ReadOnly"]]) });
}

/** @throws Failure */
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

export async function addUser(c: ConsoleRequest): Promise<Response> {
  const { form, gateway } = c.var;
  try {
    const user = newUserOf(c.var);
    const { snapshot, actor } = visitorOf(c);
    actions.addUser.plan(snapshot, actor, user, gateway.configuration);
    await makeChange(c, actions.addUser, { ...user, passwordHash: await newHash(c) });
    return toUser(c, user.username);
  } catch (error) {
    return sendNew(c, { fields: form, failure: failureOf(error) });
  }
}

/** Tables with more columns get a text field instead of boxes. */
const MOST_BOXES = 40;

/** Fields outside the collapsed part of the form. */
const plain = [
  ...["user", "database", "table", "role", "expires", "beside"],
  ...["csrf", "seen", "password"],
];

async function sendEntry(c: ConsoleRequest, fields: Fields, failure?: Failure): Promise<Response> {
  const filled = { fields, failure };
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
  const isNarrow = fields.entries().some(([name, value]) => value !== "" && !plain.includes(name));
  const form = html`<div class="group">
${field(filled, { name: "database", label: "Database", hint: "A name, or * for every database", more: required, offered: names.databases })}
${field(filled, { name: "table", label: "Table", hint: "Empty for all; a name, or a prefix such as customer_*", offered: names.tables })}
${choice(filled, { name: "role", label: "Role" }, entryRoles)}
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
${area(filled, { name: "row_filter", label: "Row filter", hint: "One condition a line, all must hold: tenant = @tenant, size < 5, region IN (eu, us)" })}
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

/** @throws Failure */
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

/** The user, database and table in the URL. */
function placeIn(c: ConsoleRequest): Map<string, string> {
  return new Map(["user", "database", "table"].map((name) => [name, c.req.query(name) ?? ""]));
}

export async function showEntry(c: ConsoleRequest): Promise<Response> {
  const visitor = visitorOf(c);
  const { snapshot, actor } = visitor;
  const place = placeIn(c);
  const [username = "", database = "", table] = place.values();
  const role = c.req.query("role");
  if (role !== undefined) place.set("role", role);
  if (!mayGrantTo(visitor, username)) throw new Refusal("user_not_found");
  const { isVisible } = manageableBy(snapshot, actor);
  const grants = grantsOf(snapshot, username);
  const held = isVisible(database) ? entriesAt(grants, database, table || undefined) : [];
  // A permanent entry and a temporary one may exist side by side.
  const isTemporary = c.req.query("temporary") !== undefined;
  const meant = held.find(({ expires }) => (expires !== undefined) === isTemporary) ?? held[0];
  if (held.length > 1) place.set("beside", "yes");
  return sendEntry(c, fieldsOf(place, meant));
}

export async function putEntry(c: ConsoleRequest): Promise<Response> {
  const form = gatherBoxes(c.var.form);
  const username = form.get("user") ?? "";
  if (!mayGrantTo(visitorOf(c), username)) throw new Refusal("user_not_found");
  // The button that looks up names changes nothing.
  if (form.get("look") === "yes") return sendEntry(c, form);
  try {
    const grant = entryOf(form);
    const isBeside = form.get("beside") === "yes";
    await makeChange(c, actions.grant, { username, grant, isWhole: true, isBeside });
  } catch (error) {
    return sendEntry(c, form, failureOf(error));
  }
  return toUser(c, username);
}

function sendEnd(c: ConsoleRequest, fields: Fields, failure?: Failure): Response {
  const at = (name: string) => fields.get(name) ?? "";
  const [username, database, table] = [at("user"), at("database"), at("table")];
  const place = table === "" ? database : `${database}.${table}`;
  return sendForm(
    c,
    { fields, failure },
    {
      ...{ username, title: `End the entry for ${place}`, action: "/access/end", listsSeen: true },
      heading: html`End the entry of <bdi>${username}</bdi> for <code>${place}</code>?`,
      sentence:
        "It ends at once, for tokens that are out as well. A wider entry decides from then on, if there is one.",
      form: html`${hidden("database", database)}${hidden("table", table)}`,
      button: html`<button class="danger">End this entry</button>`,
    },
  );
}

export function showEnd(c: ConsoleRequest): Response {
  const place = placeIn(c);
  requireManageable(visitorOf(c), place.get("user") ?? "");
  return sendEnd(c, place);
}

export async function endEntry(c: ConsoleRequest): Promise<Response> {
  const { form } = c.var;
  const [username = "", database = ""] = [form.get("user"), form.get("database")];
  requireManageable(visitorOf(c), username);
  try {
    const table = form.get("table") || undefined;
    await makeChange(c, actions.revoke, { username, database, table });
  } catch (error) {
    return sendEnd(c, form, failureOf(error));
  }
  return toUser(c, username);
}
