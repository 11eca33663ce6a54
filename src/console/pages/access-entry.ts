import { entryRoles } from "../../access/limit-fields.ts";
import { html, nothing } from "../../pages/html.ts";
import {
  area,
  box,
  type ChangingForm,
  changingPage,
  choice,
  type Fields,
  field,
  seenList,
} from "./forms.ts";
import { type ConsolePage, hidden } from "./frame.ts";

/** The page on which a grant is given, narrowed or widened. */
export function entryPage(view: ChangingForm): ConsolePage {
  const { fields } = view;
  const username = fields.get("user") ?? "";
  const form = html`${hidden("user", username)}
<div class="group">
${field(fields, { name: "database", label: "Database", hint: "A name, or * for every database", isRequired: true })}
${field(fields, { name: "table", label: "Table", hint: "Empty for all; tickets, or customer_*" })}
${choice(fields, { name: "role", label: "Role" }, entryRoles)}
${field(fields, { name: "expires", label: "Ends, in UTC", type: "datetime-local", hint: "Empty for no end" })}
</div>
${box(fields, { name: "beside", label: "Where one entry ends and one does not: leave the other one" })}
<details${isNarrow(fields) ? html` open` : nothing}><summary>Narrow it</summary>
<p class="hint">For ReadWrite and ReadOnly. Names are parted by commas; what is empty does not narrow.</p>
<div class="group">
${field(fields, { name: "columns", label: "Columns", hint: "The only ones that may be named" })}
${field(fields, { name: "writable_columns", label: "Written columns", hint: "Empty: the same; - for none" })}
${field(fields, { name: "max_rows", label: "Most rows of an answer" })}
${field(fields, { name: "max_changes", label: "Most rows changed at once" })}
${field(fields, { name: "require_approval", label: "Needs approval", hint: "Such as DELETE, UPDATE" })}
${field(fields, { name: "approvers", label: "Approvers", hint: "Empty: whoever may grant there" })}
${field(fields, { name: "require_where", label: "Columns that a where must pin", hint: "By = or IN, to change rows" })}
</div>
${area(fields, { name: "row_filter", label: "Rows", hint: "One condition a line, all must hold: tenant = @tenant, size < 5, region IN (eu, us)" })}
</details>`;
  return changingPage(view, {
    ...{ username, form, title: `Grant to ${username}`, action: "/access/entry" },
    heading: html`Grant to <bdi>${username}</bdi>`,
    sentence:
      "What is held for the same place is replaced as a whole. It is in force at once, for tokens that are out as well.",
    button: html`<button class="primary">Give this entry</button>`,
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
