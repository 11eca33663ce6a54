import { existsSync } from "node:fs";
import path from "node:path";
import type { DatabaseSync } from "node:sqlite";
import { openWalDatabase } from "../files/wal-database.ts";
import { type ApprovalStore, approvalFileOf } from "./approval.ts";
import { tablesSql } from "./approval-rows.ts";
import {
  type ApprovalDatabase,
  ApprovalTables,
  type ApprovalTurn,
  type ApprovalValue,
} from "./approval-tables.ts";
import { type BodyCipher, openBodyCipher } from "./body-cipher.ts";

const BUSY_TIMEOUT_MS = 5000;

/** Finds something if there is a step to take, or an approval to expire by `$1`, epoch milliseconds. */
const dueSql = `SELECT 1 FROM approval_steps UNION ALL SELECT 1 FROM approvals
  WHERE state IN ('pending', 'approved') AND expires <= $1 LIMIT 1`;

/** An SQLite file (0600) that several processes may have open. */
class ApprovalFile implements ApprovalDatabase {
  readonly #database: DatabaseSync;
  readonly #cipher: BodyCipher;
  #turn: Promise<unknown> = Promise.resolve();

  constructor(database: DatabaseSync, cipher: BodyCipher) {
    this.#database = database;
    this.#cipher = cipher;
    database.exec(tablesSql);
  }

  #all(sql: string, values: readonly ApprovalValue[]): object[] {
    const named = values.map((value, at) => [`$${at + 1}`, value] as const);
    return this.#database.prepare(sql).all(Object.fromEntries(named));
  }

  /** One after the other within this process; the file's write lock keeps others out. */
  transaction<Result>(work: (turn: ApprovalTurn) => Promise<Result>): Promise<Result> {
    const done = this.#turn.then(() => this.#transact(work));
    this.#turn = done.catch(() => {});
    return done;
  }

  async #transact<Result>(work: (turn: ApprovalTurn) => Promise<Result>): Promise<Result> {
    this.#database.exec("BEGIN IMMEDIATE");
    try {
      const query = async (sql: string, ...values: ApprovalValue[]) => this.#all(sql, values);
      const result = await work({ query, now: Date.now() });
      this.#database.exec("COMMIT");
      return result;
    } catch (error) {
      if (this.#database.isTransaction) this.#database.exec("ROLLBACK");
      throw error;
    }
  }

  async hasDue(): Promise<boolean> {
    return this.#all(dueSql, [Date.now()]).length > 0;
  }

  encrypt(id: string, body: Buffer): Buffer {
    return this.#cipher.encrypt(id, body);
  }

  decrypt(id: string, sealed: Uint8Array): Buffer {
    return this.#cipher.decrypt(id, sealed);
  }

  async close(): Promise<void> {
    await this.#turn;
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
    return new ApprovalTables(new ApprovalFile(database, cipher));
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
