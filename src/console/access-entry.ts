import { planGrant, planRevoke } from "../access/administration.ts";
import { manageableBy } from "../access/administration-rights.ts";
import {
  readCondition,
  readEntry,
  viewEntry,
  writeCondition,
  writtenTime,
} from "../access/entry-view.ts";
import { isDatabaseOrEvery } from "../access/identifiers.ts";
import { tablePattern } from "../access/limit-fields.ts";
import { type Grant, grantsOf, type Snapshot } from "../access/snapshot.ts";
import { entriesAt } from "../access/user-grants.ts";
import { Refusal } from "../refusal.ts";
import {
  changingForm,
  type Failure,
  failureOf,
  makeChange,
  mayGrantTo,
  requireManageable,
} from "./changes.ts";
import { endPage, entryPage } from "./pages/access-entry.ts";
import type { Fields } from "./pages/forms.ts";
import { pathOf } from "./pages/frame.ts";
import { type ConsoleRequest, sendPage, visitorOf } from "./visit.ts";

/** The keys of an entry that are lists of names. */
const lists = ["columns", "writable_columns", "require_where", "require_approval", "approvers"];
/** Those that are numbers of rows. */
const counts = ["max_rows", "max_changes"];

function namesIn(text: string): string[] {
  return text === "-" ? [] : text.split(",").map((name) => name.trim());
}

/** The conditions of a row filter, one a line. @throws Refusal `invalid_entry` */
function conditionsIn(text: string): object[] {
  return text
    .split(/\r?\n/)
    .filter((line) => line.trim() !== "")
    .map((line) => {
      const condition = readCondition(line);
      if (condition !== undefined) return condition;
      const message = `Invalid entry: \`${line.trim()}\` is no condition such as tenant = @tenant; each takes a line of its own, and text that is not one word stands in quotes`;
      throw new Refusal("invalid_entry", { message });
    });
}

/** A moment as a browser's field has it, which is taken for UTC. */
function momentIn(text: string): string {
  return /^\d{4}-\d\d-\d\dT\d\d:\d\d(?::\d\d)?$/.test(text)
    ? `${text}${text.length === 16 ? ":00" : ""}Z`
    : text;
}

/** Reads the entry that a form describes. @throws Refusal that says what is wrong */
function entryOf(form: Fields): Grant {
  const at = (name: string) => (form.get(name) ?? "").trim();
  const [username, database, table] = [at("user"), at("database"), at("table")];
  if (!isDatabaseOrEvery(database)) throw new Refusal("invalid_database");
  if (table !== "" && !tablePattern.test(table)) throw new Refusal("invalid_table");
  const keys: Record<string, unknown> = { role: at("role") };
  for (const name of lists) if (at(name) !== "") keys[name] = namesIn(at(name));
  for (const name of counts) if (at(name) !== "") keys[name] = Number(at(name));
  if (at("row_filter") !== "") keys.row_filter = conditionsIn(at("row_filter"));
  if (at("expires") !== "") keys.expires = momentIn(at("expires"));
  return readEntry({ username, database, table: table === "" ? undefined : table }, keys);
}

/** The fields of a form for what is held at a place, or for a new entry. */
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

function show(
  c: ConsoleRequest,
  page: typeof entryPage,
  fields: Fields,
  failure?: Failure,
): Response {
  const visitor = visitorOf(c);
  return sendPage(c, visitor, page(changingForm(visitor, fields, failure)), failure?.status);
}

/** `GET /access/entry`: the form for an entry, new or as it is held. */
export function showEntry(c: ConsoleRequest): Response {
  const { snapshot, actor } = visitorOf(c);
  const place = placeIn(c);
  const username = place.get("user") ?? "";
  if (!mayGrantTo(snapshot, actor, username)) throw new Refusal("user_not_found");
  const { isVisible } = manageableBy(snapshot, actor);
  const isTemporary = c.req.query("temporary") !== undefined;
  const held = isVisible(place.get("database") ?? "") ? heldAt(snapshot, place) : [];
  // Beside an entry for good there may be one for a time.
  const meant = held.find(({ expires }) => (expires !== undefined) === isTemporary) ?? held[0];
  if (held.length > 1) place.set("beside", "yes");
  return show(c, entryPage, fieldsOf(place, meant));
}

/** `POST /access/entry`: gives the entry, in the place of what is held there. */
export async function putEntry(c: ConsoleRequest): Promise<Response> {
  const { form } = c.var;
  const username = form.get("user") ?? "";
  const { snapshot, actor: caller } = visitorOf(c);
  if (!mayGrantTo(snapshot, caller, username)) throw new Refusal("user_not_found");
  try {
    const grant = entryOf(form);
    const options = { isWhole: true, isBeside: form.get("beside") === "yes" };
    await makeChange(c, {
      username,
      plan: (current, actor) => planGrant(current, actor, grant, options),
    });
  } catch (error) {
    return show(c, entryPage, form, failureOf(error));
  }
  return c.redirect(pathOf("/access/user", { user: username }), 303);
}

/** `GET /access/end`: asks once whether an entry shall end. */
export function showEnd(c: ConsoleRequest): Response {
  const { snapshot, actor } = visitorOf(c);
  const place = placeIn(c);
  requireManageable(snapshot, actor, place.get("user") ?? "");
  return show(c, endPage, place);
}

/** `POST /access/end`: takes away what is held at a place. */
export async function endEntry(c: ConsoleRequest): Promise<Response> {
  const { form } = c.var;
  const [username = "", database = ""] = [form.get("user"), form.get("database")];
  const table = form.get("table") || undefined;
  const { snapshot, actor: caller } = visitorOf(c);
  requireManageable(snapshot, caller, username);
  try {
    await makeChange(c, {
      username,
      plan: (current, actor) => planRevoke(current, actor, username, database, table),
    });
  } catch (error) {
    return show(c, endPage, form, failureOf(error));
  }
  return c.redirect(pathOf("/access/user", { user: username }), 303);
}
