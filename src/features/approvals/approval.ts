import { randomUUID } from "node:crypto";
import path from "node:path";
import { z } from "zod";
import { readAttributes, readHolder, type Subject } from "../../core/access/grant.ts";
import { isMeant } from "../../core/access/groups.ts";
import { decide } from "../../core/access/policy.ts";
import type { ApprovalRule } from "../../core/access/rights.ts";
import { EVERY_DATABASE } from "../../core/access/roles.ts";
import { accountObstacle, namesOfPerson, type Snapshot } from "../../core/access/snapshot.ts";
import { Refusal } from "../../core/base/refusal.ts";
import { operationsInWords } from "../../core/observe/audit-filter.ts";
import { placeName } from "../../core/query/names.ts";
import { permissionClasses } from "../../core/query/permissions.ts";

/** `void`: the approval depended on a right that was lost. */
const approvalStates = ["pending", "approved", "denied", "expired", "used", "void"] as const;
export type ApprovalState = (typeof approvalStates)[number];

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

const columnsSql = `id, state, asked, expires, username, via, client, body_hash AS "bodyHash",
  basis_hash AS "basisHash", operations, operation_count AS "operationCount", rules, decided, author,
  reason, touched`;

/**
 * Finds a row if a step is to be written, an approval is due to expire, or a query was decided `$1`
 * milliseconds ago. @param now the clock in SQL, in epoch milliseconds
 */
export function dueSql(schema: "gatehouse" | "main", now: string): string {
  return `SELECT 1 FROM ${schema}.approval_steps UNION ALL SELECT 1 FROM ${schema}.approvals
    WHERE state IN ('pending', 'approved') AND expires <= ${now} UNION ALL
    SELECT 1 FROM ${schema}.approvals WHERE body IS NOT NULL AND decided <= ${now} - $1 LIMIT 1`;
}

const json = z.string().transform((text): unknown => JSON.parse(text));
const orNone = <Shape extends z.ZodType>(shape: Shape) =>
  shape.nullable().transform((value) => value ?? undefined);

const approverShape = z.object({
  kind: z.enum(["cli", "console"]),
  name: z.string(),
  /** Groups of the token at the decision. */
  groups: z.array(z.string()).readonly().exactOptional(),
});

/** Who decides: the operator at the command line, or a user of the console. */
export type Approver = Readonly<z.output<typeof approverShape>>;

function withoutGroups({ kind, name }: Approver): Approver {
  return { kind, name };
}

const operationsShape = z.array(
  z.object({ operation: z.string(), database: z.string(), tables: z.array(z.string()) }),
);
const rulesShape = z.array(
  z.object({
    entry: z.string().exactOptional(),
    boundary: z.string().exactOptional(),
    database: z.string(),
    permissions: z.array(z.enum(permissionClasses)),
    approvers: z.array(z.string().transform(readHolder)).exactOptional(),
  }),
);

const rowShape = z.object({
  id: z.string(),
  state: z.enum(approvalStates),
  /** Epoch milliseconds. */
  asked: z.number(),
  /** Epoch milliseconds until which it can be decided and, if approved, used. */
  expires: z.number(),
  username: z.string(),
  via: z.enum(["mcp", "query"]),
  /** The OAuth client that sent the query. */
  client: orNone(z.string()),
  /** SHA-256 of the query's bytes, in hexadecimal. */
  bodyHash: z.string(),
  /** SHA-256 of the deciding entries and boundaries with filters and attributes, in hexadecimal. */
  basisHash: z.string(),
  operations: json.pipe(operationsShape),
  operationCount: z.number(),
  rules: json.pipe(rulesShape),
  decided: orNone(z.number()),
  author: orNone(json.pipe(approverShape)),
  /** Why it was denied or is void. */
  reason: orNone(z.string()),
  /** The digest of the rows that its author was shown. */
  touched: orNone(z.string()),
});
export type Approval = Readonly<z.output<typeof rowShape>>;

/** An approval does not apply to a query that differs in any of these. */
export type ApprovalBinding = Pick<
  Approval,
  "username" | "via" | "client" | "bodyHash" | "basisHash"
>;

interface ApprovalRequest extends ApprovalBinding, Pick<Approval, "operations" | "operationCount"> {
  readonly body: Buffer;
  readonly asker: Subject;
  readonly rules: readonly ApprovalRule[];
  /** The id of the request that asked, for the audit. */
  readonly requestId: string;
}

export interface KeptQuery {
  readonly body: Buffer;
  /** The requester, with the groups and attributes of the token that asked. */
  readonly asker: Subject;
}

/** No JSON contains this byte. */
const SEPARATOR = "\0";

const tokenShape = z.object({
  groups: z.array(z.string()).exactOptional(),
  attributes: z.unknown().transform(readAttributes).optional(),
});

/** A query and, encrypted with it, what only the token of its requester says. */
function writeKept({ body, asker: { groups, attributes } }: KeptQuery): Buffer {
  if (groups === undefined && attributes === undefined) return body;
  const token = { groups, attributes: attributes && Object.fromEntries(attributes) };
  return Buffer.concat([body, Buffer.from(`${SEPARATOR}${JSON.stringify(token)}`)]);
}

function readKept(kept: Buffer, username: string): KeptQuery {
  const end = kept.indexOf(SEPARATOR);
  const asker = { username, tokenDatabase: EVERY_DATABASE };
  if (end === -1) return { body: kept, asker };
  const { groups, attributes } = tokenShape.parse(JSON.parse(kept.toString("utf8", end + 1)));
  const known = { ...asker, ...(groups && { groups }), ...(attributes && { attributes }) };
  return { body: kept.subarray(0, end), asker: known };
}

export interface ApprovalDecision {
  readonly state: "approved" | "denied";
  readonly author: Approver;
  readonly reason?: string | undefined;
  /** Milliseconds for which the approval is valid from now on. */
  readonly wait: number;
}

/** A step of an approval, for the audit. `name` is such as `approval_asked`. */
const stepShape = z.object({
  number: z.number(),
  name: z.string(),
  fields: json.pipe(z.record(z.string(), z.unknown())),
});

type StepFields = z.output<typeof stepShape>["fields"];

const countShape = z.object({ state: z.string(), count: z.number() });

/** Counts past approvals by state; `pending` counts current ones. */
export type ApprovalCounts = Readonly<Record<ApprovalState, number>>;

/** Per user. */
const MOST_PENDING = 20;

const DAY_MS = 24 * 3600 * 1000;

export type ApprovalValue = string | number | Buffer | null;

/** A transaction with exclusive access to the approvals. */
export interface ApprovalTransaction {
  /** Runs a statement with values for `$1` and so on. */
  query(sql: string, ...values: ApprovalValue[]): Promise<readonly object[]>;
  /** Epoch milliseconds of the clock by which approvals expire. */
  readonly now: number;
}

export interface ApprovalDatabase {
  /** Runs `work` as one transaction that excludes all other changes to approvals. */
  transaction<Result>(work: (tx: ApprovalTransaction) => Promise<Result>): Promise<Result>;
  /** True if `dueSql` finds a row. Takes no lock. */
  hasDue(keepMs: number): Promise<boolean>;
  /** Bound to the approval's id. @throws Error if decryption fails */
  encrypt(id: string, body: Buffer): Buffer;
  decrypt(id: string, sealed: Uint8Array): Buffer;
  close(): Promise<void>;
}

async function find({ query }: ApprovalTransaction, id: string): Promise<Approval | undefined> {
  const [row] = await query(`SELECT ${columnsSql} FROM approvals WHERE id = $1`, id);
  return row && rowShape.parse(row);
}

/** @param more further fields; undefined ones are omitted */
async function recordStep(
  tx: ApprovalTransaction,
  id: string,
  name: string,
  more: object,
): Promise<void> {
  const approval = await find(tx, id);
  if (approval === undefined) return;
  const { username: user, via, client, operations, operationCount } = approval;
  const about = { approval: id, user, via, client, operations, operationCount };
  await addStep(tx, name, { ...about, ...more });
}

async function addStep(tx: ApprovalTransaction, name: string, fields: object): Promise<void> {
  const sql = "INSERT INTO approval_steps (name, fields) VALUES ($1, $2)";
  await tx.query(sql, name, JSON.stringify({ ...fields, at: new Date(tx.now).toISOString() }));
}

/** Deletes the query's bytes unless the approval was decided. */
async function end(
  tx: ApprovalTransaction,
  id: string,
  state: ApprovalState,
  more = {},
): Promise<void> {
  await tx.query(
    `UPDATE approvals SET state = $1, body = CASE WHEN decided IS NULL THEN NULL ELSE body END
      WHERE id = $2`,
    state,
    id,
  );
  await tx.query(
    `INSERT INTO approval_ended VALUES ($1, 1)
      ON CONFLICT (state) DO UPDATE SET count = approval_ended.count + 1`,
    state,
  );
  await recordStep(tx, id, `approval_${state}`, more);
}

async function invalidate(tx: ApprovalTransaction, id: string, reason: string): Promise<void> {
  const state = (await find(tx, id))?.state;
  if (state !== "approved" && state !== "pending") return;
  await tx.query("UPDATE approvals SET reason = $1 WHERE id = $2", reason, id);
  await end(tx, id, "void", { reason });
}

async function expire(tx: ApprovalTransaction, keepMs: number): Promise<void> {
  const { query, now } = tx;
  const due = await query(
    "SELECT id FROM approvals WHERE state IN ('pending', 'approved') AND expires <= $1",
    now,
  );
  for (const row of due) if ("id" in row) await end(tx, String(row.id), "expired");
  await query(
    "DELETE FROM approval_shown WHERE id IN (SELECT id FROM approvals WHERE expires < $1)",
    now,
  );
  await query(
    "UPDATE approvals SET body = NULL WHERE body IS NOT NULL AND decided <= $1",
    now - keepMs,
  );
  // Closed approvals are listed for a day, or while their query is kept.
  await query("DELETE FROM approvals WHERE expires < $1 AND body IS NULL", now - DAY_MS);
}

/** Each method first expires what is due. Each step is kept until it is written to the audit. */
export class ApprovalStore {
  readonly #database: ApprovalDatabase;
  readonly #keepMs: number;

  /** @param keepDays days for which a query is kept after its decision */
  constructor(database: ApprovalDatabase, keepDays: number) {
    this.#database = database;
    this.#keepMs = keepDays * DAY_MS;
  }

  #transaction<Result>(work: (tx: ApprovalTransaction) => Promise<Result>): Promise<Result> {
    return this.#database.transaction(async (tx) => {
      await expire(tx, this.#keepMs);
      return work(tx);
    });
  }

  /**
   * Requests an approval, or returns the pending one for the same binding.
   *
   * @param wait milliseconds until it expires
   * @returns Refusal `too_many_approvals` if the user has too many pending, until one expires
   */
  async ask(request: ApprovalRequest, wait: number): Promise<Approval | Refusal> {
    const { username, via, client = null, bodyHash, basisHash, requestId } = request;
    return this.#transaction(async (tx) => {
      const { query, now } = tx;
      const [known] = await query(
        `SELECT ${columnsSql} FROM approvals WHERE state = 'pending' AND username = $1 AND via = $2
          AND client IS NOT DISTINCT FROM $3 AND body_hash = $4 AND basis_hash = $5`,
        username,
        via,
        client,
        bodyHash,
        basisHash,
      );
      if (known !== undefined) return rowShape.parse(known);
      const pendingSql = `SELECT ${columnsSql} FROM approvals
        WHERE username = $1 AND state = 'pending' ORDER BY expires`;
      const pending = await query(pendingSql, username);
      if (pending.length >= MOST_PENDING) {
        const { expires } = rowShape.parse(pending[0]);
        const message = `${MOST_PENDING} of the caller's approvals are pending, which is the maximum`;
        const retryAfter = Math.max(1, Math.ceil((expires - now) / 1000));
        return new Refusal("too_many_approvals", { message, retryAfter });
      }
      const id = randomUUID();
      await query(
        `INSERT INTO approvals (id, state, asked, expires, username, via, client, body_hash,
          basis_hash, operations, operation_count, rules, body)
          VALUES ($1, 'pending', $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12)`,
        id,
        now,
        now + wait,
        username,
        via,
        client,
        bodyHash,
        basisHash,
        JSON.stringify(request.operations),
        request.operationCount,
        JSON.stringify(request.rules),
        this.#database.encrypt(id, writeKept(request)),
      );
      await recordStep(tx, id, "approval_asked", { requestId });
      const [added] = await query(`SELECT ${columnsSql} FROM approvals WHERE id = $1`, id);
      return rowShape.parse(added);
    });
  }

  find(id: string): Promise<Approval | undefined> {
    return this.#transaction((tx) => find(tx, id));
  }

  /** Newest first. */
  list(): Promise<readonly Approval[]> {
    const sql = `SELECT ${columnsSql} FROM approvals ORDER BY asked DESC, id`;
    return this.#transaction(async ({ query }) =>
      (await query(sql)).map((row) => rowShape.parse(row)),
    );
  }

  /** The query, while it is pending or kept for review. @throws Error if it cannot be decrypted */
  async readQuery({ id, username }: Approval): Promise<KeptQuery | undefined> {
    const sql = "SELECT body FROM approvals WHERE id = $1";
    const [row] = await this.#transaction(({ query }) => query(sql, id));
    const body = row !== undefined && "body" in row ? row.body : undefined;
    if (!(body instanceof Uint8Array)) return undefined;
    try {
      return readKept(this.#database.decrypt(id, body), username);
    } catch (cause) {
      throw new Error(`the query of ${id} cannot be decrypted: the key has changed`, { cause });
    }
  }

  async recordShown(id: string, author: Approver, touched: string): Promise<void> {
    const sql = `INSERT INTO approval_shown VALUES ($1, $2, $3)
      ON CONFLICT (id, author) DO UPDATE SET touched = excluded.touched`;
    const by = JSON.stringify(withoutGroups(author));
    await this.#transaction(({ query }) => query(sql, id, by, touched));
  }

  async recordRows(id: string, author: Approver, rows: number): Promise<void> {
    await this.#transaction(async (tx) => {
      const approval = await find(tx, id);
      if (approval === undefined) return;
      const { username: requester, operations, operationCount } = approval;
      const tables = operations.flatMap(({ database, tables }) =>
        tables.map((table) => placeName(database, table)),
      );
      const shown = { approval: id, user: author.name, requester, operations, operationCount };
      const fields = {
        ...shown,
        tables: [...new Set(tables)],
        rows,
        author: withoutGroups(author),
      };
      await addStep(tx, "approval_shown", fields);
    });
  }

  /** False if the approval is no longer pending. */
  async decide(id: string, decision: ApprovalDecision): Promise<boolean> {
    const { state, author, reason, wait } = decision;
    return this.#transaction(async (tx) => {
      const approval = await find(tx, id);
      if (approval?.state !== "pending") return false;
      const own = withoutGroups(author);
      const ends = state === "approved" ? tx.now + wait : approval.expires;
      await tx.query(
        `UPDATE approvals SET decided = $1, author = $2, reason = $3, expires = $4,
          body = ${this.#keepMs === 0 ? "NULL" : "body"},
          touched = (SELECT s.touched FROM approval_shown s
            WHERE s.id = approvals.id AND s.author = $6)
          WHERE id = $5`,
        tx.now,
        JSON.stringify(author),
        reason ?? null,
        ends,
        id,
        JSON.stringify(own),
      );
      await end(tx, id, state, { author: own, reason });
      return true;
    });
  }

  /** Uses up an approval. Returns false if it was already used or is no longer valid. */
  async consume(id: string, requestId: string): Promise<boolean> {
    return this.#transaction(async (tx) => {
      const approval = await find(tx, id);
      if (approval?.state !== "approved") return false;
      const author = approval.author && withoutGroups(approval.author);
      await end(tx, id, "used", { author, requestId });
      return true;
    });
  }

  invalidate(id: string, reason: string): Promise<void> {
    return this.#transaction((tx) => invalidate(tx, id, reason));
  }

  /** Ends all approvals of these users, which may be thousands, in one transaction. */
  async invalidateAll(usernames: readonly string[], reason: string): Promise<void> {
    const sql = "SELECT id, username FROM approvals WHERE state IN ('pending', 'approved')";
    const gone = new Set<unknown>(usernames);
    await this.#transaction(async (tx) => {
      for (const row of await tx.query(sql)) {
        const isGone = "id" in row && "username" in row && gone.has(row.username);
        if (isGone) await invalidate(tx, String(row.id), reason);
      }
    });
  }

  /**
   * Passes each step to `write` once, even if several processes call this together, and removes the
   * steps when `written` resolves. After a crash in between they are passed again.
   */
  async takeSteps(
    write: (name: string, fields: StepFields) => void,
    written: () => Promise<void>,
  ): Promise<void> {
    // Most polls find nothing due, and need no lock for that.
    if (!(await this.#database.hasDue(this.#keepMs))) return;
    await this.#transaction(async ({ query }) => {
      const rows = await query("SELECT * FROM approval_steps ORDER BY number");
      const steps = rows.map((row) => stepShape.parse(row));
      const last = steps.at(-1);
      if (last === undefined) return;
      for (const { name, fields } of steps) write(name, fields);
      await written();
      await query("DELETE FROM approval_steps WHERE number <= $1", last.number);
    });
  }

  async counts(): Promise<ApprovalCounts> {
    const counts = { pending: 0, approved: 0, denied: 0, expired: 0, used: 0, void: 0 };
    const sql = `SELECT state, count FROM approval_ended
      UNION ALL SELECT 'pending', count(*) FROM approvals WHERE state = 'pending'`;
    const rows = await this.#transaction(({ query }) => query(sql));
    const known = rows.map((row) => countShape.parse(row));
    return { ...counts, ...Object.fromEntries(known.map(({ state, count }) => [state, count])) };
  }

  close(): Promise<void> {
    return this.#database.close();
  }
}

/** The approvals file of a gateway that stores its state in files. */
export function approvalFilePath(serviceDirectory: string): string {
  return path.join(serviceDirectory, "approvals.sqlite");
}

const LONGEST_REASON = 500;

/** A message for the requester on one line, or undefined for none. @throws Refusal `bad_request` */
export function readReason(text: string): string | undefined {
  const reason = text.replace(/\p{C}+/gu, " ").trim();
  if (reason.length <= LONGEST_REASON) return reason === "" ? undefined : reason;
  const message = `The reason may have at most ${LONGEST_REASON} characters`;
  throw new Refusal("bad_request", { message });
}

export function approvalSummary({ operations, operationCount }: Approval): string {
  return operationsInWords(operations, operationCount) ?? "-";
}

export function describeApprovers({ approvers, database }: ApprovalRule): string {
  return approvers === undefined ? `everyone who may grant on ${database}` : approvers.join(", ");
}

/**
 * True if the author may decide on an approval now. Each rule allows the approvers and the members
 * of groups it names, or else those who may grant there, but never the requester under any name. The operator at
 * the command line is always allowed, since they could edit the access file.
 */
export function mayApprove(
  snapshot: Snapshot,
  { kind, name, groups = [] }: Approver,
  { username, rules }: Pick<ApprovalRequest, "username" | "rules">,
): boolean {
  if (kind === "cli") return true;
  if (namesOfPerson(snapshot, username).has(name)) return false;
  if (accountObstacle(snapshot, name) !== undefined) return false;
  const subject = { username: name, tokenDatabase: EVERY_DATABASE, groups };
  return rules.every(({ approvers, database }) =>
    approvers === undefined
      ? decide(snapshot, subject, "GRANT", database).allowed
      : approvers.some((approver) => isMeant(snapshot, subject, approver)),
  );
}
