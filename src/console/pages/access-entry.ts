import { entryRoles } from "../../access/limit-fields.ts";
import { html, nothing } from "../../pages/html.ts";
import { pathOf } from "./access.ts";
import {
  area,
  type ChangingForm,
  changingForm,
  choice,
  type Fields,
  failureNote,
  field,
} from "./forms.ts";
import { type ConsolePage, hidden } from "./frame.ts";

/** What the form for an entry shows. */
export interface EntryView extends ChangingForm {
  readonly fields: Fields;
}

/** The page on which a grant is given, narrowed or widened. */
export function entryPage(view: EntryView): ConsolePage {
  const { fields, failure } = view;
  const username = fields.get("user") ?? "";
  const form = html`${hidden("user", username)}
<div class="group">
${field(fields, { name: "database", label: "Database", hint: "A name, or * for every database", isRequired: true })}
${field(fields, { name: "table", label: "Table", hint: "Empty for all; tickets, or customer_* for a pattern" })}
${choice(fields, { name: "role", label: "Role" }, entryRoles)}
${field(fields, { name: "expires", label: "Ends, in UTC", type: "datetime-local", hint: "Empty for no end" })}
</div>
<details${isNarrow(fields) ? html` open` : nothing}><summary>Narrow it</summary>
<p class="hint">For ReadWrite and ReadOnly. Names are parted by commas; what is empty does not narrow.</p>
<div class="group">
${field(fields, { name: "columns", label: "Columns", hint: "The only ones that may be named" })}
${field(fields, { name: "writable_columns", label: "Columns that may be written", hint: "Empty: the same; - for none" })}
${field(fields, { name: "require_where", label: "Columns that a where must pin" })}
${field(fields, { name: "max_rows", label: "Most rows of an answer" })}
${field(fields, { name: "max_changes", label: "Most rows changed at once" })}
${field(fields, { name: "require_approval", label: "Needs approval", hint: "Such as DELETE, UPDATE" })}
${field(fields, { name: "approvers", label: "Approvers", hint: "Empty: whoever may grant there" })}
</div>
${area(fields, { name: "row_filter", label: "Rows", hint: "One condition a line, all must hold: tenant = @tenant, size < 5, region IN (eu, us)" })}
</details>`;
  return {
    title: `Grant to ${username}`,
    place: "access",
    content: html`<p><a href="${pathOf("/access/user", { user: username })}"><bdi>${username}</bdi></a></p>
<h1>Grant to <bdi>${username}</bdi></h1>
${failureNote(failure)}
<p>What is held for the same place is replaced as a whole. It is in force at once, for tokens that are out as well.</p>
${changingForm(view, "/access/entry", form, html`<button class="primary">Give this entry</button>`)}`,
  };
}

/** True if something is filled in below the fold. */
function isNarrow(fields: Fields): boolean {
  const plain = ["user", "database", "table", "role", "expires", "csrf", "seen", "password"];
  return fields.entries().some(([name, value]) => value !== "" && !plain.includes(name));
}

/** The page that asks whether an entry shall end. */
export function endPage(view: EntryView): ConsolePage {
  const { fields, failure, seen } = view;
  const [username = "", database = "", table = ""] = ["user", "database", "table"].map((name) =>
    fields.get(name),
  );
  const place = table === "" ? database : `${database}.${table}`;
  const form = html`${hidden("user", username)}${hidden("database", database)}${hidden("table", table)}
<p><bdi>${username}</bdi> has now:</p><ul>${seen.map((line) => html`<li>${line}</li>`)}</ul>`;
  return {
    title: `End the entry for ${place}`,
    place: "access",
    content: html`<h1>End the entry of <bdi>${username}</bdi> for <code>${place}</code>?</h1>
${failureNote(failure)}
<p>It ends at once, for tokens that are out as well. A wider entry decides from then on, if there is one.</p>
${changingForm(view, "/access/end", form, html`<button class="danger">End this entry</button>`)}`,
  };
}
