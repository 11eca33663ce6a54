import { manageableBy } from "../access/administration.ts";
import { entriesAt } from "../access/entries.ts";
import { readCondition, viewEntry, writeCondition, writtenTime } from "../access/entry-view.ts";
import type { Grant } from "../access/grant.ts";
import { entryRoles, type Report, readGrant } from "../access/records.ts";
import { EVERY_DATABASE } from "../access/roles.ts";
import { grantsOf, type Snapshot } from "../access/snapshot.ts";
import { actions } from "../administration/actions.ts";
import { html, nothing } from "../pages/html.ts";
import { Refusal } from "../refusal.ts";
import {
  changingForm,
  type Failure,
  failureOf,
  InvalidFields,
  makeChange,
  mayGrantTo,
  requireManageable,
} from "./changes.ts";
import {
  area,
  box,
  boxes,
  type ChangingForm,
  type ConsolePage,
  changingPage,
  choice,
  type Fields,
  field,
  gatherBoxes,
  hidden,
  listedIn,
  pathOf,
  seenList,
} from "./frame.ts";
import type { SchemaNames } from "./names.ts";
import { type ConsoleRequest, sendPage, visitorOf } from "./visit.ts";

interface EntryForm extends ChangingForm {
  readonly names: SchemaNames;
}

/** Tables with more columns get a text field instead of boxes. */
const MOST_BOXES = 40;

function entryPage(view: EntryForm): ConsolePage {
  const { fields, names } = view;
  const username = fields.get("user") ?? "";
  const isListed = names.columns.length > 0 && names.columns.length <= MOST_BOXES;
  const columns = (name: string, label: string, hint: string, none?: string) =>
    isListed
      ? boxes(view, { name, label, hint, offered: names.columns }, none)
      : field(view, {
          ...{ name, label },
          hint: `${hint}; separate names with commas${none === undefined ? "" : `; - for ${none}`}`,
        });
  const form = html`${hidden("user", username)}
<div class="group">
${field(view, { name: "database", label: "Database", hint: "A name, or * for every database", isRequired: true, offered: names.databases })}
${field(view, { name: "table", label: "Table", hint: "Empty for all; a name, or a prefix such as customer_*", offered: names.tables })}
${choice(view, { name: "role", label: "Role" }, entryRoles)}
${field(view, { name: "expires", label: "Ends, in UTC", type: "datetime-local", hint: "Empty for no end" })}
</div>
${box(view, { name: "beside", label: "Keep the other entry for this place, if one of them ends and one does not" })}
<details${isNarrow(fields) ? html` open` : nothing}><summary>Narrow it</summary>
<p class="hint">For ReadWrite and ReadOnly. An empty field sets no limit.</p>
<div class="${isListed ? "after" : "group"}">
${columns("columns", "Columns that may be read", `${isListed ? "None chosen" : "Empty"}: all`)}
${columns("writable_columns", "Columns that may be written", `${isListed ? "None chosen" : "Empty"}: those that may be read`, "no column")}
${columns("require_where", "Required in the condition", "A change must compare these columns by = or IN")}
</div>
<div class="group">
${field(view, { name: "max_rows", label: "Row limit", hint: "Rows of one answer" })}
${field(view, { name: "max_changes", label: "Change limit", hint: "Rows that one query may change" })}
${field(view, { name: "require_approval", label: "Needs approval", hint: "Such as DELETE, UPDATE" })}
${field(view, { name: "approvers", label: "Approvers", hint: "Usernames; empty for everybody who may grant there" })}
</div>
${area(view, { name: "row_filter", label: "Row filter", hint: "One condition a line, all must hold: tenant = @tenant, size < 5, region IN (eu, us)" })}
</details>`;
  const look =
    names.databases.length === 0
      ? nothing
      : html` <button name="look" value="yes" formnovalidate>List tables and columns</button>`;
  return changingPage(view, {
    ...{ username, form, title: `Grant to ${username}`, action: "/access/entry" },
    heading: html`Grant to <bdi>${username}</bdi>`,
    sentence:
      "This entry replaces what is held for the same place. It is in force at once, for issued tokens too.",
    button: html`<button class="primary">Give this entry</button>${look}`,
  });
}

/** True if a field in the collapsed part of the form is filled in. */
function isNarrow(fields: Fields): boolean {
  const place = ["user", "database", "table", "role", "expires", "beside"];
  const plain = [...place, "csrf", "seen", "password"];
  return fields.entries().some(([name, value]) => value !== "" && !plain.includes(name));
}

function endPage(view: ChangingForm): ConsolePage {
  const { fields, seen } = view;
  const [username = "", database = "", table = ""] = ["user", "database", "table"].map((name) =>
    fields.get(name),
  );
  const place = table === "" ? database : `${database}.${table}`;
  return changingPage(view, {
    ...{ username, title: `End the entry for ${place}`, action: "/access/end" },
    heading: html`End the entry of <bdi>${username}</bdi> for <code>${place}</code>?`,
    sentence:
      "It ends at once, for tokens that are out as well. A wider entry decides from then on, if there is one.",
    form: html`${hidden("user", username)}${hidden("database", database)}${hidden("table", table)}
${seenList(username, seen)}`,
    button: html`<button class="danger">End this entry</button>`,
  });
}

const lists = ["columns", "writable_columns", "require_where", "require_approval", "approvers"];
const counts = ["max_rows", "max_changes"];

/** Reads a moment from a browser's field as UTC. */
function momentIn(text: string): string {
  return /^\d{4}-\d\d-\d\dT\d\d:\d\d(?::\d\d)?$/.test(text)
    ? `${text}${text.length === 16 ? ":00" : ""}Z`
    : text;
}

/** @throws InvalidFields */
function entryOf(form: Fields): Grant {
  const at = (name: string) => (form.get(name) ?? "").trim();
  const wrong = new Map<string, string>();
  const record: Record<string, unknown> = {
    ...{ username: at("user"), database: at("database"), role: at("role") },
    ...(at("table") !== "" && { tables: [at("table")] }),
    ...(at("expires") !== "" && { expires: momentIn(at("expires")) }),
  };
  for (const name of lists) {
    if (at(name) !== "") record[name] = at(name) === "-" ? [] : listedIn(at(name));
  }
  for (const name of counts) if (at(name) !== "") record[name] = Number(at(name));
  const lines = at("row_filter")
    .split(/\r?\n/)
    .filter((line) => line.trim() !== "");
  const isBad = (line: string) => readCondition(line) === undefined;
  if (lines.length > 0) record.row_filter = lines.map(readCondition);
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
  const bad = lines.find(isBad);
  if (bad !== undefined) {
    wrong.set(
      "row_filter",
      `\`${bad.trim()}\` is not a condition such as tenant = @tenant. Each takes a line of its own; quote text that is not one word.`,
    );
  }
  throw new InvalidFields(wrong);
}

function fieldsOf(place: Fields, held: Grant | undefined): Fields {
  if (held === undefined) return new Map([...place, ["role", place.get("role") ?? "ReadOnly"]]);
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
  const names = ["user", "database", "table"];
  const place = new Map(names.map((name) => [name, c.req.query(name) ?? ""]));
  const role = c.req.query("role");
  return role === undefined ? place : place.set("role", role);
}

function heldAt(snapshot: Snapshot, place: Fields): readonly Grant[] {
  const table = place.get("table") || undefined;
  const grants = grantsOf(snapshot, place.get("user") ?? "");
  return entriesAt(grants, place.get("database") ?? "", table);
}

async function showForm(c: ConsoleRequest, fields: Fields, failure?: Failure): Promise<Response> {
  const visitor = visitorOf(c);
  const [database = "", table = ""] = ["database", "table"].map((name) => fields.get(name)?.trim());
  const names = await c.var.namesOffered(visitor.actor, database, table);
  const page = entryPage({ ...changingForm(visitor, fields, failure), names });
  return sendPage(c, visitor, page, failure?.status);
}

function showEndForm(c: ConsoleRequest, fields: Fields, failure?: Failure): Response {
  const visitor = visitorOf(c);
  return sendPage(c, visitor, endPage(changingForm(visitor, fields, failure)), failure?.status);
}

export async function showEntry(c: ConsoleRequest): Promise<Response> {
  const { snapshot, actor } = visitorOf(c);
  const place = placeIn(c);
  const username = place.get("user") ?? "";
  if (!mayGrantTo(snapshot, actor, username)) throw new Refusal("user_not_found");
  const { isVisible } = manageableBy(snapshot, actor);
  const isTemporary = c.req.query("temporary") !== undefined;
  const held = isVisible(place.get("database") ?? "") ? heldAt(snapshot, place) : [];
  // A permanent entry and a temporary one may exist side by side.
  const meant = held.find(({ expires }) => (expires !== undefined) === isTemporary) ?? held[0];
  if (held.length > 1) place.set("beside", "yes");
  return showForm(c, fieldsOf(place, meant));
}

export async function putEntry(c: ConsoleRequest): Promise<Response> {
  const form = gatherBoxes(c.var.form);
  const username = form.get("user") ?? "";
  const { snapshot, actor: caller } = visitorOf(c);
  if (!mayGrantTo(snapshot, caller, username)) throw new Refusal("user_not_found");
  // The button that looks up names changes nothing.
  if (form.get("look") === "yes") return showForm(c, form);
  try {
    const grant = entryOf(form);
    const isBeside = form.get("beside") === "yes";
    await makeChange(c, actions.grant, { username, grant, isWhole: true, isBeside });
  } catch (error) {
    return showForm(c, form, failureOf(error));
  }
  return c.redirect(pathOf("/access/user", { user: username }), 303);
}

export function showEnd(c: ConsoleRequest): Response {
  const { snapshot, actor } = visitorOf(c);
  const place = placeIn(c);
  requireManageable(snapshot, actor, place.get("user") ?? "");
  return showEndForm(c, place);
}

export async function endEntry(c: ConsoleRequest): Promise<Response> {
  const { form } = c.var;
  const [username = "", database = ""] = [form.get("user"), form.get("database")];
  const table = form.get("table") || undefined;
  const { snapshot, actor: caller } = visitorOf(c);
  requireManageable(snapshot, caller, username);
  try {
    await makeChange(c, actions.revoke, { username, database, table });
  } catch (error) {
    return showEndForm(c, form, failureOf(error));
  }
  return c.redirect(pathOf("/access/user", { user: username }), 303);
}
