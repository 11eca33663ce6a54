import type { Approval } from "../../approvals/approval.ts";
import type { NoPreview } from "../../approvals/preview.ts";
import { keepNumbers, type ShownRows, visibleJson } from "../../approvals/shown-rows.ts";
import { type Html, html, nothing } from "../../pages/html.ts";
import { type Column, table } from "./frame.ts";

/** A row of a Preview: what each column holds, as JSON. */
type Row = ReadonlyMap<string, string>;

function readRow(text: string): Row {
  const row: unknown = JSON.parse(text, keepNumbers);
  const entries = typeof row === "object" && row !== null ? Object.entries(row) : [];
  return new Map(entries.map(([name, value]) => [name, JSON.stringify(value)]));
}

const number = /^-?\d/;

/** A value for people: text without its quotes, and what might be taken for another apart. */
function cell(json: string | undefined): Html {
  if (json === undefined || json === "null") return html`<span class="hint">null</span>`;
  if (json === '""') return html`<span class="hint">empty</span>`;
  const text: unknown = json.startsWith('"') ? JSON.parse(json) : json;
  return html`<bdi>${visibleJson(String(text))}</bdi>`;
}

function rowTable(
  label: string,
  rows: readonly Row[],
  cellOf: (row: Row, at: number, name: string) => Html,
) {
  const names = [...new Set(rows.flatMap((row) => [...row.keys()]))];
  const isNumeric = (name: string) => rows.every((row) => number.test(row.get(name) ?? "0"));
  const columns = names.map(
    (name): Column => (isNumeric(name) ? [visibleJson(name), "number"] : visibleJson(name)),
  );
  const cells = rows.map((row, at) => names.map((name) => cellOf(row, at, name)));
  return html`<h3>${label}</h3><div class="scroll" tabindex="0" role="region" aria-label="${label}">${table(label, columns, cells)}</div>`;
}

/** Rows before and after in one table, where a change is told cell by cell. */
function changes(before: readonly Row[], after: readonly Row[]): Html {
  return rowTable("Before and after", before, (row, at, name) => {
    const [old, now] = [row.get(name), after[at]?.get(name)];
    return old === now ? cell(old) : html`<del>${cell(old)}</del> <ins>${cell(now)}</ins>`;
  });
}

function rowTables({ before, after }: ShownRows, isUpdate: boolean): Html {
  const [old, now] = [before.map(readRow), after.map(readRow)];
  if (isUpdate && old.length === now.length && old.length > 0) return changes(old, now);
  const list = (label: string, rows: readonly Row[]) =>
    rows.length === 0 ? nothing : rowTable(label, rows, (row, _, name) => cell(row.get(name)));
  return html`${list("Rows before", old)}${list("Rows after", now)}`;
}

const verbs: Readonly<Record<string, string>> = {
  Delete: "deleted",
  Insert: "inserted",
  Update: "updated",
  Upsert: "inserted or updated",
};

/** What a query would do to the rows of its table, and what is not known of that. */
export function rowsSection(approval: Approval, shown: ShownRows | NoPreview): Html {
  if ("reason" in shown) {
    return html`<h2>Rows</h2><div class="note"><p>No rows are shown: ${visibleJson(shown.reason)}. Whoever approves approves the query, whatever it touches by then.</p></div>`;
  }
  const { affected, before, after } = shown;
  const operation = approval.operations[0]?.operation ?? "";
  const most = Math.max(before.length, after.length);
  const count = `${affected} ${affected === 1 ? "row" : "rows"}`;
  return html`<h2>Rows</h2>
<p><strong>${count} would be ${verbs[operation] ?? "changed"}.</strong>${affected > most ? ` The first ${most} are shown.` : ""}
Your approval is for these rows: if one of them is changed, goes or comes meanwhile, nothing is done.</p>
${rowTables(shown, operation === "Update")}
<p class="quiet">Effects on other tables, by triggers and foreign keys, are not shown and not compared.</p>`;
}
