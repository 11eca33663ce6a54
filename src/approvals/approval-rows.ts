/** Approvals as rows of a table, and back. */
import { z } from "zod";
import { permissionClasses } from "../query/permissions.ts";
import { type Approval, approvalStates } from "./approval.ts";

/** The tables of approvals, for SQLite; those in a store have the same names and columns. */
export const tablesSql = `
  CREATE TABLE IF NOT EXISTS approvals (
    id TEXT PRIMARY KEY, state TEXT NOT NULL, asked INTEGER NOT NULL, expires INTEGER NOT NULL,
    username TEXT NOT NULL, via TEXT NOT NULL, client TEXT, body_hash TEXT NOT NULL,
    basis_hash TEXT NOT NULL, operations TEXT NOT NULL, operation_count INTEGER NOT NULL,
    rules TEXT NOT NULL, body BLOB, decided INTEGER, author TEXT, reason TEXT, touched TEXT
  ) STRICT, WITHOUT ROWID;
  CREATE INDEX IF NOT EXISTS approvals_by_user ON approvals (username, state);
  CREATE INDEX IF NOT EXISTS approvals_by_end ON approvals (state, expires);
  CREATE INDEX IF NOT EXISTS approvals_kept ON approvals (decided) WHERE body IS NOT NULL;
  CREATE TABLE IF NOT EXISTS approval_shown (
    id TEXT NOT NULL, author TEXT NOT NULL, touched TEXT NOT NULL, PRIMARY KEY (id, author)
  ) STRICT, WITHOUT ROWID;
  CREATE TABLE IF NOT EXISTS approval_steps (
    number INTEGER PRIMARY KEY AUTOINCREMENT, name TEXT NOT NULL, fields TEXT NOT NULL
  ) STRICT;
  CREATE TABLE IF NOT EXISTS approval_ended (state TEXT PRIMARY KEY, count INTEGER NOT NULL) STRICT;
`;

/** The columns of an approval, without the bytes of its query. */
export const columnsSql = `id, state, asked, expires, username, via, client, body_hash, basis_hash,
  operations, operation_count, rules, decided, author, reason, touched`;

const json = z.string().transform((text): unknown => JSON.parse(text));
const orNone = <Shape extends z.ZodType>(shape: Shape) =>
  shape.nullable().transform((value) => value ?? undefined);

const author = z.object({ kind: z.enum(["cli", "console"]), name: z.string() });
const operation = z.object({
  operation: z.string(),
  database: z.string(),
  tables: z.array(z.string()),
});
const rule = z.object({
  entry: z.string().exactOptional(),
  boundary: z.string().exactOptional(),
  database: z.string(),
  permissions: z.array(z.enum(permissionClasses)),
  approvers: z.array(z.string()).exactOptional(),
});

const rowShape = z
  .object({
    id: z.string(),
    state: z.enum(approvalStates),
    asked: z.number(),
    expires: z.number(),
    username: z.string(),
    via: z.enum(["mcp", "query"]),
    client: orNone(z.string()),
    body_hash: z.string(),
    basis_hash: z.string(),
    operations: json.pipe(z.array(operation)),
    operation_count: z.number(),
    rules: json.pipe(z.array(rule)),
    decided: orNone(z.number()),
    author: orNone(json.pipe(author)),
    reason: orNone(z.string()),
    touched: orNone(z.string()),
  })
  .transform(
    ({ body_hash, basis_hash, operation_count, ...row }): Approval => ({
      ...row,
      bodyHash: body_hash,
      basisHash: basis_hash,
      operationCount: operation_count,
    }),
  );

/** Reads a row of `columnsSql`. @throws ZodError for one that was not written here */
export function readApproval(row: object): Approval {
  return rowShape.parse(row);
}

const stepShape = z.object({
  number: z.number(),
  name: z.string(),
  fields: json.pipe(z.record(z.string(), z.unknown())),
});

/** Reads a step that is still to be written into the audit. */
export function readStep(row: object) {
  return stepShape.parse(row);
}

const countShape = z.object({ state: z.string(), count: z.number() });

/** Reads how many approvals there are in a state. */
export function readCount(row: object): [state: string, count: number] {
  const { state, count } = countShape.parse(row);
  return [state, count];
}
