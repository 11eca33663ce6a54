import { randomUUID } from "node:crypto";
import { existsSync } from "node:fs";
import path from "node:path";
import type { DatabaseSync, SQLInputValue } from "node:sqlite";
import { openWalDatabase } from "../files/wal-database.ts";
import {
  type Approval,
  type ApprovalCounts,
  type ApprovalDecision,
  type ApprovalRequest,
  type ApprovalState,
  type ApprovalStep,
  type ApprovalStore,
  type Author,
  approvalFileOf,
  MOST_PENDING,
} from "./approval.ts";
import { columnsSql, readApproval, readStep, tablesSql } from "./approval-rows.ts";
import { type BodyCipher, openBodyCipher } from "./body-cipher.ts";

const BUSY_TIMEOUT_MS = 5000;
/** Milliseconds for which approvals are known that are over. */
const KNOWN_MS = 24 * 3600 * 1000;

/** What the audit tells of an approval at each step. */
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

/** Approvals in an SQLite file (0600) that several processes may have open. */
class ApprovalFile implements ApprovalStore {
  readonly #database: DatabaseSync;
  readonly #cipher: BodyCipher;

  constructor(database: DatabaseSync, cipher: BodyCipher) {
    this.#database = database;
    this.#cipher = cipher;
    database.exec(tablesSql);
  }

  #run(sql: string, ...values: SQLInputValue[]): number {
    return Number(this.#database.prepare(sql).run(...values).changes);
  }

  /** Runs `work` with the file's write lock, once what is due has expired. */
  #transaction<Result>(work: (now: number) => Result): Result {
    this.#database.exec("BEGIN IMMEDIATE");
    try {
      const now = Date.now();
      this.#expire(now);
      const result = work(now);
      this.#database.exec("COMMIT");
      return result;
    } catch (error) {
      if (this.#database.isTransaction) this.#database.exec("ROLLBACK");
      throw error;
    }
  }

  #expire(now: number): void {
    const due = this.#database
      .prepare("SELECT id FROM approvals WHERE state IN ('pending', 'approved') AND expires <= ?")
      .all(now);
    for (const { id } of due) this.#end(String(id), "expired");
    this.#run("DELETE FROM shown WHERE id IN (SELECT id FROM approvals WHERE expires < ?)", now);
    this.#run("DELETE FROM approvals WHERE expires < ?", now - KNOWN_MS);
  }

  #find(id: string): Approval | undefined {
    const row = this.#database.prepare(`SELECT ${columnsSql} FROM approvals WHERE id = ?`).get(id);
    return row === undefined ? undefined : readApproval(row);
  }

  /** Puts an approval into a state in which the bytes are not needed any more. */
  #end(id: string, state: ApprovalState, more: Readonly<Record<string, unknown>> = {}): void {
    this.#run("UPDATE approvals SET state = ?, body = NULL WHERE id = ?", state, id);
    this.#run(
      "INSERT INTO ended VALUES (?, 1) ON CONFLICT (state) DO UPDATE SET count = count + 1",
      state,
    );
    this.#note(id, `approval_${state}`, more);
  }

  #note(id: string, name: string, more: Readonly<Record<string, unknown>>): void {
    const approval = this.#find(id);
    if (approval === undefined) return;
    const fields = { ...told(approval), ...more, at: new Date().toISOString() };
    this.#run("INSERT INTO steps (name, fields) VALUES (?, ?)", name, JSON.stringify(fields));
  }

  async ask(request: ApprovalRequest, wait: number): Promise<Approval | undefined> {
    return this.#transaction((now) => this.#known(request) ?? this.#add(request, now, wait));
  }

  #known({ username, via, client, bodyHash, basisHash }: ApprovalRequest): Approval | undefined {
    const row = this.#database
      .prepare(
        `SELECT ${columnsSql} FROM approvals WHERE state = 'pending' AND username = ? AND via = ?
          AND client IS ? AND body_hash = ? AND basis_hash = ?`,
      )
      .get(username, via, client ?? null, bodyHash, basisHash);
    return row === undefined ? undefined : readApproval(row);
  }

  #add(request: ApprovalRequest, now: number, wait: number): Approval | undefined {
    const { username, via, client, bodyHash, basisHash, body, requestId } = request;
    const count = "SELECT count(*) AS n FROM approvals WHERE username = ? AND state = 'pending'";
    const pending = Number(this.#database.prepare(count).get(username)?.n);
    if (pending >= MOST_PENDING) return undefined;
    const id = randomUUID();
    this.#run(
      `INSERT INTO approvals (id, state, asked, expires, username, via, client, body_hash,
        basis_hash, operations, operation_count, rules, body)
        VALUES (?, 'pending', ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)`,
      ...[id, now, now + wait, username, via, client ?? null, bodyHash, basisHash],
      ...[JSON.stringify(request.operations), request.operationCount],
      ...[JSON.stringify(request.rules), this.#cipher.encrypt(id, body)],
    );
    this.#note(id, "approval_asked", { requestId });
    return this.#find(id);
  }

  async find(id: string): Promise<Approval | undefined> {
    return this.#transaction(() => this.#find(id));
  }

  async list(): Promise<readonly Approval[]> {
    const sql = `SELECT ${columnsSql} FROM approvals ORDER BY asked DESC, id`;
    return this.#transaction(() => this.#database.prepare(sql).all().map(readApproval));
  }

  async readBody(id: string): Promise<Buffer | undefined> {
    const sql = "SELECT body FROM approvals WHERE id = ?";
    const body = this.#transaction(() => this.#database.prepare(sql).get(id)?.body);
    if (!(body instanceof Uint8Array)) return undefined;
    try {
      return this.#cipher.decrypt(id, body);
    } catch (cause) {
      throw new Error(`the query of ${id} cannot be decrypted: the key is another one`, { cause });
    }
  }

  async noteShown(id: string, { kind, name }: Author, touched: string): Promise<void> {
    const sql = "INSERT OR REPLACE INTO shown VALUES (?, ?, ?)";
    this.#transaction(() => this.#run(sql, id, JSON.stringify({ kind, name }), touched));
  }

  async decide(id: string, decision: ApprovalDecision): Promise<boolean> {
    const { state, author, reason, wait } = decision;
    return this.#transaction((now) => {
      const approval = this.#find(id);
      if (approval?.state !== "pending") return false;
      const { kind, name } = author;
      const by = JSON.stringify({ kind, name });
      const ends = state === "approved" ? now + wait : approval.expires;
      this.#run(
        `UPDATE approvals SET decided = ?, author = ?, reason = ?, expires = ?,
          touched = (SELECT touched FROM shown WHERE shown.id = approvals.id AND author = ?)
          WHERE id = ?`,
        ...[now, by, reason ?? null, ends, by, id],
      );
      this.#end(id, state, { author, ...(reason === undefined ? {} : { reason }) });
      return true;
    });
  }

  async consume(id: string, requestId: string): Promise<boolean> {
    return this.#transaction(() => {
      const approval = this.#find(id);
      if (approval?.state !== "approved") return false;
      this.#end(id, "used", { author: approval.author, requestId });
      return true;
    });
  }

  async makeVoid(id: string, reason: string): Promise<void> {
    this.#transaction(() => {
      const state = this.#find(id)?.state;
      if (state !== "approved" && state !== "pending") return;
      this.#run("UPDATE approvals SET reason = ? WHERE id = ?", reason, id);
      this.#end(id, "void", { reason });
    });
  }

  async takeSteps(write: (step: ApprovalStep) => void): Promise<void> {
    // Most looks find nothing, and need no lock for that.
    const due = `SELECT 1 FROM steps UNION ALL SELECT 1 FROM approvals
      WHERE state IN ('pending', 'approved') AND expires <= ? LIMIT 1`;
    if (this.#database.prepare(due).get(Date.now()) === undefined) return;
    this.#transaction(() => {
      const rows = this.#database.prepare("SELECT * FROM steps ORDER BY number").all();
      for (const row of rows) {
        const { number, ...step } = readStep(row);
        write(step);
        this.#run("DELETE FROM steps WHERE number = ?", number);
      }
    });
  }

  async counts(): Promise<ApprovalCounts> {
    const counts = { pending: 0, approved: 0, denied: 0, expired: 0, used: 0, void: 0 };
    const sql = `SELECT state, count FROM ended
      UNION ALL SELECT 'pending', count(*) FROM approvals WHERE state = 'pending'`;
    const rows = this.#transaction(() => this.#database.prepare(sql).all());
    return Object.assign(
      counts,
      Object.fromEntries(rows.map(({ state, count }) => [String(state), Number(count)])),
    );
  }

  async close(): Promise<void> {
    this.#database.close();
  }
}

/**
 * Opens the approvals of a service directory, and makes file and key (0600) if there are none.
 *
 * @throws the error of SQLite or the file system, or UnsafeFileError for a key that others may read
 */
export async function openApprovalsIn(serviceDirectory: string): Promise<ApprovalStore> {
  const cipher = await openBodyCipher(path.join(serviceDirectory, "approvals.key"));
  const database = openWalDatabase(approvalFileOf(serviceDirectory), BUSY_TIMEOUT_MS);
  try {
    return new ApprovalFile(database, cipher);
  } catch (error) {
    database.close();
    throw error;
  }
}

/** The approvals of a service directory; undefined if none was ever asked for. @throws as `openApprovalsIn` */
export async function findApprovalsIn(
  serviceDirectory: string,
): Promise<ApprovalStore | undefined> {
  const isThere = existsSync(approvalFileOf(serviceDirectory));
  return isThere ? openApprovalsIn(serviceDirectory) : undefined;
}
