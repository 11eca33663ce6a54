import { type Html, html, nothing } from "../../pages/html.ts";
import type { Failure } from "../changes.ts";
import type { Explanation } from "../options.ts";
import { area, choice, type Fields, failureNote, field } from "./forms.ts";
import { type ConsolePage, hidden, table } from "./frame.ts";

/** What the page of a question shows. */
export interface CheckView {
  readonly fields: Fields;
  readonly csrf: string;
  readonly explanation?: Explanation;
  readonly failure?: Failure;
}

function decisions({ query, decided }: Explanation): Html {
  const rows = (decided?.decisions ?? []).map(
    ({ role, entry, boundary, reason, additions = [] }, at) => {
      const { operation = "", database = "", tables = [] } = query?.accesses[at] ?? {};
      const place = tables.length === 0 ? database : `${database}.${tables.join(", ")}`;
      return [
        operation,
        html`<code>${place}</code>`,
        entry === undefined ? "no entry" : html`${role ?? ""} by <code>${entry}</code>`,
        boundary ?? "-",
        reason,
        additions.length === 0 ? "-" : html`<code>${additions.join(", ")}</code>`,
      ];
    },
  );
  if (rows.length === 0) return nothing;
  return table(
    "Decisions",
    ["Operation", "Where", "Decided by", "Boundary", "Reason", "Rows added"],
    rows,
  );
}

function answer(explanation: Explanation | undefined): Html {
  if (explanation === undefined) return nothing;
  const { allowed, code, message, body } = explanation;
  const why = message === undefined ? nothing : html`<p>${message}</p>`;
  const verdict = allowed
    ? html`<span class="state good">It would pass</span>`
    : html`<span class="state bad">It would be refused: <code>${code}</code></span>`;
  const bytes =
    body === undefined
      ? nothing
      : html`<h3>The bytes that would go up</h3><pre>${body.toString()}</pre>`;
  return html`<section aria-live="polite"><h2>Answer</h2><p>${verdict}</p>${why}${decisions(explanation)}${bytes}</section>`;
}

/** The page on which somebody asks whether a query would pass. */
export function checkPage({ fields, csrf, explanation, failure }: CheckView): ConsolePage {
  return {
    title: "Would a query pass?",
    place: "access",
    content: html`<p class="path"><a href="/access">Access</a></p>
<h1>Would a query pass?</h1>
${failureNote(failure)}
<p>Nothing is sent to a database. The query is decided on as the gateway would decide on it now.</p>
<form method="post" action="/access/check" class="sheet narrow">
${hidden("csrf", csrf)}
<div class="group">
${field(fields, { name: "user", label: "User", isRequired: true })}
${choice(fields, { name: "via", label: "Comes by" }, ["query", "mcp"])}
</div>
${area(fields, { name: "query", label: "Query", hint: 'JSON, such as {"Select": {"database": "main", "from": "users", "columns": ["id"]}}' })}
<div class="actions"><button class="primary">Decide</button></div>
</form>
${answer(explanation)}`,
  };
}
