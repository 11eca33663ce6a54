import { randomUUID } from "node:crypto";
import { z } from "zod";
import { permissionClasses } from "../query/query.ts";
import {
  type Approval,
  type ApprovalCounts,
  type ApprovalDecision,
  type ApprovalRequest,
  type ApprovalState,
  type ApprovalStep,
  type ApprovalStore,
  type Author,
  approvalStates,
  MOST_PENDING,
} from "./approval.ts";

/** The SQLite tables. Those in a store have the same names and columns. */
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

const columnsSql = `id, state, asked, expires, username, via, client, body_hash, basis_hash,
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

/** @throws ZodError for a row that was not written here */
function readApproval(row: object): Approval {
  return rowShape.parse(row);
}

const stepShape = z.object({
  number: z.number(),
  name: z.string(),
  fields: json.pipe(z.record(z.string(), z.unknown())),
});

/** Reads a step that is not yet in the audit. */
function readStep(row: object) {
  return stepShape.parse(row);
}

const countShape = z.object({ state: z.string(), count: z.number() });

function readCount(row: object): [state: string, count: number] {
  const { state, count } = countShape.parse(row);
  return [state, count];
}

const DAY_MS = 24 * 3600 * 1000;
/** How long closed approvals are listed if their query is not kept. */
const KNOWN_MS = DAY_MS;

export type ApprovalValue = string | number | Buffer | null;

/** A transaction with exclusive access to the approvals. */
export interface ApprovalTurn {
  /** Runs a statement with values for `$1` and so on. */
  query(sql: string, ...values: ApprovalValue[]): Promise<readonly object[]>;
  /** Epoch milliseconds of the clock by which approvals expire. */
  readonly now: number;
}

export interface ApprovalDatabase {
  /** Runs `work` as one transaction that excludes all other changes to approvals. */
  transaction<Result>(work: (turn: ApprovalTurn) => Promise<Result>): Promise<Result>;
  /**
   * True if a step is to be written, an approval is due to expire, or a query was decided `keepMs`
   * ago. Takes no lock.
   */
  hasDue(keepMs: number): Promise<boolean>;
  /** Bound to the approval's id. @throws Error if decryption fails */
  encrypt(id: string, body: Buffer): Buffer;
  decrypt(id: string, sealed: Uint8Array): Buffer;
  close(): Promise<void>;
}

function told({ id, username, via, client, operations, operationCount }: Approval) {
  return {
    approval: id,
    user: username,
    via,
    ...(client === undefined ? {} : { client }),
    operations,
    operationCount,
  };
}

async function find({ query }: ApprovalTurn, id: string): Promise<Approval | undefined> {
  const [row] = await query(`SELECT ${columnsSql} FROM approvals WHERE id = $1`, id);
  return row === undefined ? undefined : readApproval(row);
}

type Details = Readonly<Record<string, unknown>>;

async function note(turn: ApprovalTurn, id: string, name: string, more: Details): Promise<void> {
  const approval = await find(turn, id);
  if (approval === undefined) return;
  const fields = { ...told(approval), ...more, at: new Date(turn.now).toISOString() };
  const sql = "INSERT INTO approval_steps (name, fields) VALUES ($1, $2)";
  await turn.query(sql, name, JSON.stringify(fields));
}

/**
 * Moves an approval into a state. The query's bytes are deleted unless the approval was
 * decided.
 */
async function end(
  turn: ApprovalTurn,
  id: string,
  state: ApprovalState,
  more: Details = {},
): Promise<void> {
  await turn.query(
    `UPDATE approvals SET state = $1, body = CASE WHEN decided IS NULL THEN NULL ELSE body END
      WHERE id = $2`,
    ...[state, id],
  );
  await turn.query(
    `INSERT INTO approval_ended VALUES ($1, 1)
      ON CONFLICT (state) DO UPDATE SET count = approval_ended.count + 1`,
    state,
  );
  await note(turn, id, `approval_${state}`, more);
}

async function expire(turn: ApprovalTurn, keepMs: number): Promise<void> {
  const { query, now } = turn;
  const due = await query(
    "SELECT id FROM approvals WHERE state IN ('pending', 'approved') AND expires <= $1",
    now,
  );
  for (const row of due) if ("id" in row) await end(turn, String(row.id), "expired");
  await query(
    "DELETE FROM approval_shown WHERE id IN (SELECT id FROM approvals WHERE expires < $1)",
    now,
  );
  await query(
    "UPDATE approvals SET body = NULL WHERE body IS NOT NULL AND decided <= $1",
    now - keepMs,
  );
  await query("DELETE FROM approvals WHERE expires < $1 AND body IS NULL", now - KNOWN_MS);
}

export class ApprovalTables implements ApprovalStore {
  readonly #database: ApprovalDatabase;
  readonly #keepMs: number;

  /** @param keepDays days for which a query is kept after its decision */
  constructor(database: ApprovalDatabase, keepDays: number) {
    this.#database = database;
    this.#keepMs = keepDays * DAY_MS;
  }

  #inTurn<Result>(work: (turn: ApprovalTurn) => Promise<Result>): Promise<Result> {
    return this.#database.transaction(async (turn) => {
      await expire(turn, this.#keepMs);
      return work(turn);
    });
  }

  async ask(request: ApprovalRequest, wait: number): Promise<Approval | undefined> {
    return this.#inTurn(
      async (turn) => (await this.#known(turn, request)) ?? this.#add(turn, request, wait),
    );
  }

  async #known(
    { query }: ApprovalTurn,
    { username, via, client, bodyHash, basisHash }: ApprovalRequest,
  ): Promise<Approval | undefined> {
    const [row] = await query(
      `SELECT ${columnsSql} FROM approvals WHERE state = 'pending' AND username = $1 AND via = $2
        AND client IS NOT DISTINCT FROM $3 AND body_hash = $4 AND basis_hash = $5`,
      ...[username, via, client ?? null, bodyHash, basisHash],
    );
    return row === undefined ? undefined : readApproval(row);
  }

  async #add(
    turn: ApprovalTurn,
    request: ApprovalRequest,
    wait: number,
  ): Promise<Approval | undefined> {
    const { query, now } = turn;
    const { username, via, client, bodyHash, basisHash, body, requestId } = request;
    const pending = await query(
      "SELECT id FROM approvals WHERE username = $1 AND state = 'pending'",
      username,
    );
    if (pending.length >= MOST_PENDING) return undefined;
    const id = randomUUID();
    await query(
      `INSERT INTO approvals (id, state, asked, expires, username, via, client, body_hash,
        basis_hash, operations, operation_count, rules, body)
        VALUES ($1, 'pending', $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12)`,
      ...[id, now, now + wait, username, via, client ?? null, bodyHash, basisHash],
      ...[JSON.stringify(request.operations), request.operationCount],
      ...[JSON.stringify(request.rules), this.#database.encrypt(id, body)],
    );
    await note(turn, id, "approval_asked", { requestId });
    return find(turn, id);
  }

  async find(id: string): Promise<Approval | undefined> {
    return this.#inTurn((turn) => find(turn, id));
  }

  async list(): Promise<readonly Approval[]> {
    const sql = `SELECT ${columnsSql} FROM approvals ORDER BY asked DESC, id`;
    return this.#inTurn(async ({ query }) => (await query(sql)).map(readApproval));
  }

  async readBody(id: string): Promise<Buffer | undefined> {
    const sql = "SELECT body FROM approvals WHERE id = $1";
    const [row] = await this.#inTurn(({ query }) => query(sql, id));
    const body = row !== undefined && "body" in row ? row.body : undefined;
    if (!(body instanceof Uint8Array)) return undefined;
    try {
      return this.#database.decrypt(id, body);
    } catch (cause) {
      throw new Error(`the query of ${id} cannot be decrypted: the key is another one`, { cause });
    }
  }

  async noteShown(id: string, { kind, name }: Author, touched: string): Promise<void> {
    const sql = `INSERT INTO approval_shown VALUES ($1, $2, $3)
      ON CONFLICT (id, author) DO UPDATE SET touched = excluded.touched`;
    const by = JSON.stringify({ kind, name });
    await this.#inTurn(({ query }) => query(sql, id, by, touched));
  }

  async decide(id: string, decision: ApprovalDecision): Promise<boolean> {
    const { state, author, reason, wait } = decision;
    return this.#inTurn(async (turn) => {
      const approval = await find(turn, id);
      if (approval?.state !== "pending") return false;
      const { kind, name } = author;
      const by = JSON.stringify({ kind, name });
      const ends = state === "approved" ? turn.now + wait : approval.expires;
      await turn.query(
        `UPDATE approvals SET decided = $1, author = $2, reason = $3, expires = $4,
          body = ${this.#keepMs === 0 ? "NULL" : "body"},
          touched = (SELECT s.touched FROM approval_shown s
            WHERE s.id = approvals.id AND s.author = $2)
          WHERE id = $5`,
        ...[turn.now, by, reason ?? null, ends, id],
      );
      await end(turn, id, state, { author, ...(reason === undefined ? {} : { reason }) });
      return true;
    });
  }

  async consume(id: string, requestId: string): Promise<boolean> {
    return this.#inTurn(async (turn) => {
      const approval = await find(turn, id);
      if (approval?.state !== "approved") return false;
      await end(turn, id, "used", { author: approval.author, requestId });
      return true;
    });
  }

  async makeVoid(id: string, reason: string): Promise<void> {
    await this.#inTurn(async (turn) => {
      const state = (await find(turn, id))?.state;
      if (state !== "approved" && state !== "pending") return;
      await turn.query("UPDATE approvals SET reason = $1 WHERE id = $2", reason, id);
      await end(turn, id, "void", { reason });
    });
  }

  async takeSteps(write: (step: ApprovalStep) => void): Promise<void> {
    // Most polls find nothing due, and need no lock for that.
    if (!(await this.#database.hasDue(this.#keepMs))) return;
    await this.#inTurn(async ({ query }) => {
      for (const row of await query("SELECT * FROM approval_steps ORDER BY number")) {
        const { number, ...step } = readStep(row);
        write(step);
        await query("DELETE FROM approval_steps WHERE number = $1", number);
      }
    });
  }

  async counts(): Promise<ApprovalCounts> {
    const counts = { pending: 0, approved: 0, denied: 0, expired: 0, used: 0, void: 0 };
    const sql = `SELECT state, count FROM approval_ended
      UNION ALL SELECT 'pending', count(*) FROM approvals WHERE state = 'pending'`;
    const rows = await this.#inTurn(({ query }) => query(sql));
    return Object.assign(counts, Object.fromEntries(rows.map(readCount)));
  }

  close(): Promise<void> {
    return this.#database.close();
  }
}
