/** Audit lines as CSV (RFC 4180), for the command line and the console. */
import { placeName } from "../query/names.ts";
import { changeInWords, type ReadLine } from "./audit-filter.ts";
import { type AuditQuestion, searchAudit } from "./audit-search.ts";

const columns: Readonly<Record<string, (line: ReadLine) => unknown>> = {
  time: ({ time }) => time,
  event: ({ msg }) => msg,
  user: ({ user }) => user,
  author: ({ author }) => author && `${author.name} (${author.kind})`,
  via: ({ via }) => via,
  client: ({ client }) => client,
  address: ({ address }) => address,
  operations: ({ operations }) => unique(operations.map(({ operation }) => operation)),
  tables: ({ operations }) =>
    unique(
      operations.flatMap(({ database, tables }) =>
        tables.length === 0 ? [database] : tables.map((table) => placeName(database, table)),
      ),
    ),
  entries: ({ operations }) => unique(operations.flatMap(({ entry = [] }) => entry)),
  decision: ({ decision, outcome }) => decision ?? outcome,
  reason: ({ reason }) => reason,
  status: ({ toolStatus, status }) => toolStatus ?? status,
  affected: ({ affected }) => affected,
  rows: ({ rows }) => rows,
  format: ({ format }) => format,
  approval: ({ approval }) => approval,
  changes: ({ changes }) => changes.map((one) => changeInWords(one).join(" ")).join("; "),
  request: ({ requestId }) => requestId,
};

function unique(names: readonly string[]): string {
  return [...new Set(names)].join(", ");
}

/**
 * A spreadsheet would run a cell that begins like a formula. One that separates cells by `;`, as
 * those of many countries do, or by `|` also begins a cell after it.
 */
function csvCell(value: unknown): string {
  const text = String(value ?? "")
    .replace(/[\p{Cc}\p{Cf}\p{Zl}\p{Zp}]/gu, " ")
    .replace(/(?<=^|[;|])(?=[\s"]*[=+\-@\uff1d\uff0b\uff0d\uff20])/g, "'");
  return `"${text.replaceAll('"', '""')}"`;
}

/** A line with a note in its first cell. */
export function csvNote(note: string): string {
  return csvLine([note, ...Array.from({ length: Object.keys(columns).length - 1 }, () => "")]);
}

function csvLine(cells: readonly unknown[]): string {
  return `${cells.map(csvCell).join(",")}\r\n`;
}

export const csvHead = csvLine(Object.keys(columns));

export function formatCsv(line: ReadLine): string {
  return csvLine(Object.values(columns).map((read) => read(line)));
}

export type CsvPage = Awaited<ReturnType<typeof searchAsCsv>>;

/** Searches as `searchAudit`. Only those who see every line see addresses. */
export async function searchAsCsv(question: AuditQuestion) {
  const { lines, ...rest } = await searchAudit(question);
  const isWhole = question.visible === undefined;
  const shown = isWhole ? lines : lines.map((line) => ({ ...line, address: undefined }));
  return { csv: shown.map(formatCsv).join(""), count: lines.length, ...rest };
}
