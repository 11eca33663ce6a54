import { z } from "zod";

/** The gateway writes no line longer than this. */
export const LONGEST_LINE = 4 * 1024 * 1024;
export const NEWLINE = 0x0a;

/** Whole lines of a file, and the offset at which they begin. */
export interface Piece {
  readonly start: number;
  readonly lines: Buffer;
}

/** Joins chunks into whole lines and drops lines that are too long. */
export async function* wholeLines(
  chunks: AsyncIterable<Buffer>,
  start: number,
): AsyncGenerator<Piece> {
  let rest: Buffer = Buffer.alloc(0);
  let at = start;
  for await (const chunk of chunks) {
    const end = chunk.lastIndexOf(NEWLINE) + 1;
    if (end > 0) {
      const lines = Buffer.concat([rest, chunk.subarray(0, end)]);
      yield { start: at, lines };
      at += lines.length;
      rest = Buffer.from(chunk.subarray(end));
    } else if (rest.length + chunk.length <= LONGEST_LINE) rest = Buffer.concat([rest, chunk]);
    else {
      at += rest.length + chunk.length;
      rest = Buffer.alloc(0);
    }
  }
  if (rest.length > 0) yield { start: at, lines: rest };
}

/** Yields the lines that contain all needles. Do not keep the bytes of a line. */
export function* linesIn(
  { start, lines }: Piece,
  needles: readonly string[],
): Generator<{ readonly bytes: Buffer; readonly offset: number }> {
  // The longest needle is usually the rarest.
  const [first, ...others] = needles.toSorted((a, b) => b.length - a.length);
  const needle = first === undefined ? undefined : Buffer.from(first);
  for (let at = 0; at < lines.length; ) {
    const found = needle === undefined ? at : lines.indexOf(needle, at);
    if (found === -1) return;
    const newline = lines.indexOf(NEWLINE, found);
    const end = newline === -1 ? lines.length : newline;
    const begin = Math.max(at, lines.lastIndexOf(NEWLINE, found) + 1);
    const bytes = lines.subarray(begin, end);
    if (others.every((other) => bytes.includes(other))) yield { bytes, offset: start + begin };
    at = end + 1;
  }
}

/** An audit line lists at most this many operations of a query. */
export const NAMED_OPERATIONS = 16;

export const auditOutcomes = ["allowed", "denied", "failed"] as const;
type AuditOutcome = (typeof auditOutcomes)[number];

const outcomeMarks: Readonly<Record<AuditOutcome, readonly ["decision" | "level", string]>> = {
  allowed: ["decision", "allow"],
  denied: ["decision", "deny"],
  failed: ["level", "error"],
};

/** Such as `Delete main.users` or `Delete main.users and 2 more`. */
export function operationsInWords(
  operations: readonly { operation: string; database: string; tables: readonly string[] }[],
  count: number,
): string | undefined {
  const [first] = operations;
  if (first === undefined) return undefined;
  const { operation, database, tables } = first;
  const objects = tables.length === 0 ? [database] : tables.map((table) => `${database}.${table}`);
  const rest = count > 1 ? `and ${count - 1} more` : "";
  return [operation, objects.join(","), rest].filter((word) => word !== "").join(" ");
}

/** All criteria that are set must match. */
export interface AuditFilter {
  /** The caller, the author of a change, or the user whom a change is about. */
  readonly user?: string | undefined;
  readonly database?: string | undefined;
  /** `table` or `database.table`. */
  readonly table?: string | undefined;
  readonly operation?: string | undefined;
  readonly outcome?: AuditOutcome | undefined;
  /** Epoch milliseconds, each inclusive. */
  readonly since: number;
  readonly until: number;
}

const text = z.string().optional().catch(undefined);
const operationShape = z.looseObject({
  operation: z.string().catch(""),
  database: z.string().catch(""),
  tables: z.array(z.string()).catch([]),
  role: text,
  entry: text,
  boundary: text,
  shape: text,
});

/** Lenient, because lines of earlier versions must parse too. */
const lineShape = z.looseObject({
  time: z.string(),
  msg: z.string(),
  level: text,
  user: text,
  via: text,
  client: text,
  path: text,
  method: text,
  decision: text,
  reason: text,
  outcome: text,
  approval: text,
  file: text,
  line: z.number().optional().catch(undefined),
  status: z.number().optional().catch(undefined),
  affected: z.number().optional().catch(undefined),
  rows: z.number().optional().catch(undefined),
  operations: z.array(operationShape).catch([]),
  operationCount: z.number().catch(0),
  author: z.object({ kind: z.string(), name: z.string() }).optional().catch(undefined),
  changes: z
    .array(z.looseObject({ change: z.string(), user: text, entry: text, role: text }))
    .catch([]),
});
export type ReadLine = z.infer<typeof lineShape>;

/** Returns undefined for anything but an audit line, such as a line cut by a crash. */
export function parseLine(line: Buffer): ReadLine | undefined {
  try {
    return lineShape.safeParse(JSON.parse(line.toString())).data;
  } catch {
    return undefined;
  }
}

/** Texts that every matching line contains, so that other lines need not be parsed. */
export function needlesOf(filter: AuditFilter): string[] {
  const { user, database, table, operation, outcome } = filter;
  const names = [user, database, table?.split(".").at(-1), operation];
  const needles = names.flatMap((name) => (name === undefined ? [] : [JSON.stringify(name)]));
  const mark = outcome && outcomeMarks[outcome].map((word) => JSON.stringify(word)).join(":");
  return mark === undefined ? needles : [...needles, mark];
}

function concernsUser({ user, author, changes }: ReadLine, name: string): boolean {
  return user === name || author?.name === name || changes.some((change) => change.user === name);
}

function fitsTable(table: string | undefined) {
  const [name, database] = (table ?? "").split(".").reverse();
  return (operation: ReadLine["operations"][number]) =>
    table === undefined ||
    (operation.tables.includes(name ?? "") &&
      (database === undefined || operation.database === database));
}

export function matcherOf(filter: AuditFilter): (line: ReadLine) => boolean {
  const { user, database, table, operation, outcome, since, until } = filter;
  const [member, word] = outcome === undefined ? [] : outcomeMarks[outcome];
  const isOfTable = fitsTable(table);
  const asksOperation = [database, table, operation].some((one) => one !== undefined);
  const fits = (one: ReadLine["operations"][number]) =>
    (database === undefined || one.database === database) &&
    (operation === undefined || one.operation === operation) &&
    isOfTable(one);
  return (line) => {
    const time = Date.parse(line.time);
    return (
      time >= since &&
      time <= until &&
      (user === undefined || concernsUser(line, user)) &&
      (member === undefined || line[member] === word) &&
      (!asksOperation || line.operations.some(fits))
    );
  };
}
