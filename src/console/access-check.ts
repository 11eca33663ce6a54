import { manageableBy } from "../access/administration-rights.ts";
import { type Html, html, nothing } from "../pages/html.ts";
import { Refusal } from "../refusal.ts";
import { type Failure, failureOf, requireManageable } from "./changes.ts";
import type { Explanation } from "./options.ts";
import { area, choice, type Fields, failureNote, field } from "./pages/forms.ts";
import { type ConsolePage, hidden, table } from "./pages/frame.ts";
import { type Console, type ConsoleRequest, sendPage, visitorOf } from "./visit.ts";

function show(
  console: Console,
  c: ConsoleRequest,
  fields: Fields,
  result: { explanation?: Explanation; failure?: Failure },
): Response {
  const visitor = visitorOf(console, c);
  manageableBy(visitor.snapshot, visitor.actor);
  const page = checkPage({ fields, csrf: visitor.csrf, ...result });
  return sendPage(c, visitor, page, result.failure?.status);
}

/** `GET /access/check`: the form for a question. */
export function showCheck(console: Console, c: ConsoleRequest): Response {
  return show(console, c, new Map([["user", c.req.query("user") ?? ""]]), {});
}

/** `POST /access/check`: would this query pass, for whom, by which entry, and as which bytes. */
export function check(console: Console, c: ConsoleRequest): Response {
  const { form } = c.var;
  try {
    return show(console, c, form, { explanation: explain(console, c, form) });
  } catch (error) {
    return show(console, c, form, { failure: failureOf(error) });
  }
}

/** @throws Refusal for a user or a database that is beyond what the visitor may see */
function explain({ options, ...rest }: Console, c: ConsoleRequest, form: Fields): Explanation {
  const { snapshot, actor } = visitorOf({ options, ...rest }, c);
  const username = form.get("user") ?? "";
  requireManageable(snapshot, actor, username);
  const via = form.get("via") === "mcp" ? "mcp" : "query";
  const found = options.explain(username, via, Buffer.from(form.get("query") ?? ""));
  const { isVisible } = manageableBy(snapshot, actor);
  const isSeen = (found.query?.accesses ?? []).every(({ database }) => isVisible(database));
  if (!isSeen) throw new Refusal("role_insufficient");
  return found;
}

/** What the page of a question shows. */
interface CheckView {
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
function checkPage({ fields, csrf, explanation, failure }: CheckView): ConsolePage {
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
