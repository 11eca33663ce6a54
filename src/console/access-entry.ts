import { planGrant, planRevoke } from "../access/administration.ts";
import { manageableBy } from "../access/administration-rights.ts";
import { readCondition, viewEntry, writeCondition, writtenTime } from "../access/entry-view.ts";
import { entryRoles } from "../access/limit-fields.ts";
import { type Report, readGrant } from "../access/records.ts";
import { EVERY_DATABASE } from "../access/roles.ts";
import { type Grant, grantsOf, type Snapshot } from "../access/snapshot.ts";
import { entriesAt } from "../access/user-grants.ts";
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
import { endPage, entryPage } from "./pages/access-entry.ts";
import { type Fields, gatherBoxes, listedIn } from "./pages/forms.ts";
import { pathOf } from "./pages/frame.ts";
import { type ConsoleRequest, sendPage, visitorOf } from "./visit.ts";

/** The keys of an entry that are lists of names. */
const lists = ["columns", "writable_columns", "require_where", "require_approval", "approvers"];
/** Those that are numbers of rows. */
const counts = ["max_rows", "max_changes"];

/** A moment as a browser's field has it, which is taken for UTC. */
function momentIn(text: string): string {
  return /^\d{4}-\d\d-\d\dT\d\d:\d\d(?::\d\d)?$/.test(text)
    ? `${text}${text.length === 16 ? ":00" : ""}Z`
    : text;
}

/** Reads the entry that a form describes. @throws InvalidFields */
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
  // Limits are not read where the place or the role is wrong.
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

async function showForm(c: ConsoleRequest, fields: Fields, failure?: Failure): Promise<Response> {
  const visitor = visitorOf(c);
  const [database = "", table = ""] = ["database", "table"].map((name) => fields.get(name)?.trim());
  const names = await c.var.options.names(visitor.actor, database, table);
  const page = entryPage({ ...changingForm(visitor, fields, failure), names });
  return sendPage(c, visitor, page, failure?.status);
}

function showEndForm(c: ConsoleRequest, fields: Fields, failure?: Failure): Response {
  const visitor = visitorOf(c);
  return sendPage(c, visitor, endPage(changingForm(visitor, fields, failure)), failure?.status);
}

/** `GET /access/entry`: the form for an entry, new or as it is held. */
export async function showEntry(c: ConsoleRequest): Promise<Response> {
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
  return showForm(c, fieldsOf(place, meant));
}

/** `POST /access/entry`: gives the entry, in the place of what is held there. */
export async function putEntry(c: ConsoleRequest): Promise<Response> {
  const form = gatherBoxes(c.var.form);
  const username = form.get("user") ?? "";
  const { snapshot, actor: caller } = visitorOf(c);
  if (!mayGrantTo(snapshot, caller, username)) throw new Refusal("user_not_found");
  // The button that looks up names changes nothing.
  if (form.get("look") === "yes") return showForm(c, form);
  try {
    const grant = entryOf(form);
    const options = { isWhole: true, isBeside: form.get("beside") === "yes" };
    await makeChange(c, {
      username,
      plan: (current, actor) => planGrant(current, actor, grant, options),
    });
  } catch (error) {
    return showForm(c, form, failureOf(error));
  }
  return c.redirect(pathOf("/access/user", { user: username }), 303);
}

/** `GET /access/end`: asks once whether an entry shall end. */
export function showEnd(c: ConsoleRequest): Response {
  const { snapshot, actor } = visitorOf(c);
  const place = placeIn(c);
  requireManageable(snapshot, actor, place.get("user") ?? "");
  return showEndForm(c, place);
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
    return showEndForm(c, form, failureOf(error));
  }
  return c.redirect(pathOf("/access/user", { user: username }), 303);
}
