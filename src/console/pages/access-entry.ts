import { entryRoles } from "../../access/limit-fields.ts";
import { html, nothing } from "../../pages/html.ts";
import type { SchemaNames } from "../options.ts";
import {
  area,
  box,
  boxes,
  type ChangingForm,
  changingPage,
  choice,
  type Fields,
  field,
  seenList,
} from "./forms.ts";
import { type ConsolePage, hidden } from "./frame.ts";

/** The form of an entry, and the names that it offers. */
interface EntryForm extends ChangingForm {
  readonly names: SchemaNames;
}

/** More columns than this are typed, not ticked. */
const MOST_BOXES = 40;

/** The page on which a grant is given, narrowed or widened. */
export function entryPage(view: EntryForm): ConsolePage {
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

/** True if something is filled in below the fold. */
function isNarrow(fields: Fields): boolean {
  const place = ["user", "database", "table", "role", "expires", "beside"];
  const plain = [...place, "csrf", "seen", "password"];
  return fields.entries().some(([name, value]) => value !== "" && !plain.includes(name));
}

/** The page that asks whether an entry shall end. */
export function endPage(view: ChangingForm): ConsolePage {
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
