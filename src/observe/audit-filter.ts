import { z } from "zod";
import { type AuditOutcome, outcomeMarks } from "./audit-lines.ts";

/** Which lines of the audit a question is about. */

/** What a question names; all that is named must fit. */
export interface AuditFilter {
  /** Who asked, who has changed something, or whom a change is about. */
  readonly user?: string | undefined;
  readonly database?: string | undefined;
  /** A table, or `database.table`. */
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

/** What is read of a line, also of one that an earlier version wrote. */
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

/** A line of an audit file; undefined if it is none, such as one that was cut by a crash. */
export function parseLine(line: Buffer): ReadLine | undefined {
  try {
    return lineShape.safeParse(JSON.parse(line.toString())).data;
  } catch {
    return undefined;
  }
}

/** Texts that stand in every line that fits: what lacks one need not be parsed. */
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

/** Makes the test for lines of a filter. */
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
