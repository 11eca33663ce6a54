import { z } from "zod";
import { placeName, splitPlace } from "../query/names.ts";

export const NAMED_OPERATIONS = 16;

export const auditOutcomes = ["allowed", "denied", "failed"] as const;
type AuditOutcome = (typeof auditOutcomes)[number];

/** Texts that every line with an outcome contains. */
const outcomeMarks: Readonly<Record<AuditOutcome, readonly string[]>> = {
  allowed: ['"decision":"allow"'],
  // The end of `"status":403` and `"toolStatus":403`.
  denied: ['tatus":403'],
  failed: [],
};

/** For example `Delete main.users and 2 more`. */
export function operationsInWords(
  operations: readonly { operation: string; database: string; tables: readonly string[] }[],
  count: number,
): string | undefined {
  const [first] = operations;
  if (first === undefined) return undefined;
  const { operation, database, tables } = first;
  const objects = (tables.length === 0 ? [undefined] : tables).map((table) =>
    placeName(database, table),
  );
  const rest = count > 1 ? `and ${count - 1} more` : "";
  return [operation, objects.join(","), rest].filter((word) => word !== "").join(" ");
}

export interface AuditFilter {
  /**
   * The caller, the author of a change, the user whom a change or a group's members are about, or
   * the requester of a query whose rows an approver was shown.
   */
  readonly user?: string | undefined;
  readonly database?: string | undefined;
  /** `table` or `database.table`. */
  readonly table?: string | undefined;
  /** Compared without case. */
  readonly operation?: string | undefined;
  readonly outcome?: AuditOutcome | undefined;
  readonly requestId?: string | undefined;
  /** Lines of these members, and lines that an entry of the group decided. */
  readonly group?: { readonly name: string; readonly members: readonly string[] } | undefined;
  /** Epoch milliseconds, each inclusive. */
  readonly since: number;
  readonly until: number;
}

const text = z.string().optional().catch(undefined);
const count = z.number().optional().catch(undefined);
const names = z.array(z.string()).optional().catch(undefined);
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
  requester: text,
  file: text,
  line: count,
  status: count,
  toolStatus: count,
  requestId: text,
  address: text,
  format: text,
  ms: count,
  affected: count,
  rows: count,
  operations: z.array(operationShape).catch([]),
  operationCount: z.number().catch(0),
  author: z.object({ kind: z.string(), name: z.string() }).optional().catch(undefined),
  changes: z
    .array(
      z.looseObject({
        change: z.string(),
        user: text,
        group: text,
        members: names,
        left: names,
        entry: text,
        role: text,
      }),
    )
    .catch([]),
});
export type ReadLine = z.infer<typeof lineShape>;

export function parseRecord(value: unknown): ReadLine | undefined {
  return lineShape.safeParse(value).data;
}

/** For example `group changed`, `analysts`, `rita`, `without`, `bob`. */
export function changeInWords({ change, left = [], ...about }: ReadLine["changes"][number]) {
  const words = Object.values(about).flat();
  const gone = left.length === 0 ? [] : ["without", ...left];
  return [change, ...words.filter((word) => word !== undefined).map(String), ...gone];
}

type Quote = (text: string) => string;

export function changeTexts({ changes }: ReadLine, quote: Quote): string[] {
  return changes.map((one) => {
    const [change, ...words] = changeInWords(one);
    return [change, ...words.map(quote)].join(" ");
  });
}

/** For lines about anything but a request, such as `root (cli)`, `token issued rita 5d93cd21`. */
export function eventInWords(line: ReadLine, quote: Quote): string[] {
  const { msg, user, client, author, reason, outcome, approval, file } = line;
  const by = author === undefined ? [] : [`${quote(author.name)} (${author.kind})`];
  // Its author approved it earlier.
  const isUse = msg === "approval_used";
  const place = line.line === undefined ? file : `${file}:${line.line}`;
  const asked = operationsInWords(line.operations, line.operationCount);
  const rows = line.rows === undefined ? undefined : `rows ${line.rows}`;
  const about = [approval, isUse ? undefined : user, client, asked, rows, outcome, place, reason]
    .filter((word) => word !== undefined)
    .map((word) => (word === asked || word === rows ? word : quote(word)));
  const changes = changeTexts(line, quote);
  if (isUse) return [quote(user ?? "-"), msg, ...about, ...by.map((name) => `approved by ${name}`)];
  return [...by, ...(changes.length > 0 ? changes : [msg, ...about])];
}

/**
 * Returns undefined for anything but an audit line. Before one, there may be a part of another that a
 * full disk or a crash has cut off.
 */
export function parseLine(text: string): ReadLine | undefined {
  try {
    return parseRecord(JSON.parse(text.slice(Math.max(0, text.lastIndexOf('{"level":"')))));
  } catch {
    return undefined;
  }
}

/** `a.b.c` is the table b.c of a, the table c of a.b, and also a table of this name. */
function isAskedTable(asked: string, database: string, tables: readonly string[]): boolean {
  const place = splitPlace(asked);
  return tables.some(
    (table) =>
      table === asked ||
      `${database}.${table}` === asked ||
      (place.database === database && place.table === table),
  );
}

/** Texts that every matching line contains. Other lines are not parsed. */
export function requiredTexts(filter: AuditFilter): string[] {
  const { user, database, table, outcome, requestId } = filter;
  const needles = [user, database, requestId]
    .filter((name) => name !== undefined)
    .map((name) => JSON.stringify(name));
  // All tables that the text may name end like this.
  if (table !== undefined && table !== "") {
    needles.push(JSON.stringify(table.slice(table.lastIndexOf(".") + 1)).slice(1));
  }
  return [...needles, ...(outcome === undefined ? [] : outcomeMarks[outcome])];
}

/**
 * True for a line with an outcome. Only a 403 is denied, and every other 4xx but a 401, and every
 * 5xx, has failed. A query that waits for approval is neither.
 */
export function hasOutcome(line: ReadLine, outcome: AuditOutcome): boolean {
  if (outcome === "allowed") return line.decision === "allow";
  const status = line.toolStatus ?? line.status ?? 0;
  if (outcome === "denied") return status === 403;
  return status >= 400 && status !== 401 && status !== 403;
}

/** True if an entry of the group decided, also with other groups whose entries differ. */
function isDecidedBy({ operations }: ReadLine, group: string): boolean {
  // Names may contain commas and parentheses, so only a whole one counts.
  return operations.some(({ entry = "" }) => {
    const isAlone = `${entry},`.includes(` (group ${group}),`);
    const [, groups] = / \(groups (.+)\)$/s.exec(entry) ?? [];
    return isAlone || (groups !== undefined && `, ${groups},`.includes(`, ${group},`));
  });
}

/** The returned function parses a line, and returns it if it matches. */
export function createMatcher(filter: AuditFilter): (bytes: Buffer) => ReadLine | undefined {
  const { user, database, table, outcome, requestId, group, since, until } = filter;
  const operation = filter.operation?.toLowerCase();
  // Parsing a line takes ten times as long.
  const mention = operation && new RegExp(RegExp.escape(JSON.stringify(operation)), "i");
  const members = new Set<string | undefined>(group?.members);
  const asksOperation = [database, table, operation].some((one) => one !== undefined);
  const fits = (one: ReadLine["operations"][number]) =>
    (database === undefined || one.database === database) &&
    (operation === undefined || one.operation.toLowerCase() === operation) &&
    (table === undefined || table === "" || isAskedTable(table, one.database, one.tables));
  return (bytes) => {
    const text = bytes.toString();
    if (mention && !mention.test(text)) return undefined;
    const line = parseLine(text);
    if (line === undefined) return undefined;
    const time = Date.parse(line.time);
    const users = [
      line.user,
      line.author?.name,
      line.requester,
      ...line.changes.flatMap(({ user, members = [], left = [] }) => [user, ...members, ...left]),
    ];
    const isMatch =
      time >= since &&
      time <= until &&
      (user === undefined || users.includes(user)) &&
      (group === undefined ||
        users.some((one) => members.has(one)) ||
        isDecidedBy(line, group.name)) &&
      (outcome === undefined || hasOutcome(line, outcome)) &&
      (requestId === undefined || line.requestId === requestId) &&
      (!asksOperation || line.operations.some(fits));
    return isMatch ? line : undefined;
  };
}
