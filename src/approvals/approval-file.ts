import { randomBytes, randomUUID } from "node:crypto";
import { existsSync } from "node:fs";
import { link, mkdir, rm, writeFile } from "node:fs/promises";
import path from "node:path";
import type { DatabaseSync } from "node:sqlite";
import { readGuarded } from "../files/guarded.ts";
import { openWalDatabase } from "../files/wal-database.ts";
import { KEY_BYTES, seal, unseal } from "../sealed-bytes.ts";
import { type ApprovalStore, approvalFileOf } from "./approval.ts";
import {
  type ApprovalDatabase,
  ApprovalTables,
  type ApprovalTurn,
  type ApprovalValue,
  tablesSql,
} from "./approval-tables.ts";

const BUSY_TIMEOUT_MS = 5000;

/**
 * Finds a row if a step is to be written, or an approval is due at `$1` or was decided by `$2`
 * (epoch milliseconds).
 */
const dueSql = `SELECT 1 FROM approval_steps UNION ALL SELECT 1 FROM approvals
  WHERE state IN ('pending', 'approved') AND expires <= $1
  UNION ALL SELECT 1 FROM approvals WHERE body IS NOT NULL AND decided <= $2 LIMIT 1`;

/** An SQLite file (0600) that several processes may have open. */
class ApprovalFile implements ApprovalDatabase {
  readonly #database: DatabaseSync;
  readonly #key: Buffer;
  #turn: Promise<unknown> = Promise.resolve();

  constructor(database: DatabaseSync, key: Buffer) {
    this.#database = database;
    this.#key = key;
    database.exec(tablesSql);
  }

  #all(sql: string, values: readonly ApprovalValue[]): object[] {
    const named = values.map((value, at) => [`$${at + 1}`, value] as const);
    return this.#database.prepare(sql).all(Object.fromEntries(named));
  }

  /**
   * Transactions run one at a time within this process. The file's write lock excludes other
   * processes.
   */
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

  async hasDue(keepMs: number): Promise<boolean> {
    const now = Date.now();
    return this.#all(dueSql, [now, now - keepMs]).length > 0;
  }

  encrypt(id: string, body: Buffer): Buffer {
    return seal(this.#key, body, id);
  }

  decrypt(id: string, sealed: Uint8Array): Buffer {
    return unseal(this.#key, sealed, id);
  }

  async close(): Promise<void> {
    await this.#turn;
    this.#database.close();
  }
}

/**
 * Opens the approvals of a service directory. Creates the file and the key (0600) if they are
 * missing.
 *
 * @throws the error of SQLite or the file system, or UnsafeFileError if others can read the key
 */
export async function openApprovalsIn(
  serviceDirectory: string,
  keepDays: number,
): Promise<ApprovalStore> {
  const key = await openBodyKey(path.join(serviceDirectory, "approvals.key"));
  const database = openWalDatabase(approvalFileOf(serviceDirectory), BUSY_TIMEOUT_MS);
  try {
    return new ApprovalTables(new ApprovalFile(database, key), keepDays);
  } catch (error) {
    database.close();
    throw error;
  }
}

/** As `openApprovalsIn`, but undefined if no approval was ever requested. */
export async function findApprovalsIn(
  serviceDirectory: string,
  keepDays: number,
): Promise<ApprovalStore | undefined> {
  const isThere = existsSync(approvalFileOf(serviceDirectory));
  return isThere ? openApprovalsIn(serviceDirectory, keepDays) : undefined;
}

function isCode(error: unknown, code: string): boolean {
  return error instanceof Error && "code" in error && error.code === code;
}

async function readKey(file: string): Promise<Buffer> {
  const text = (await readGuarded(file, { checkRead: true })).trim();
  const key = Buffer.from(text, "base64url");
  if (key.length !== KEY_BYTES || key.toString("base64url") !== text) {
    throw new Error(`${file} is no key: it holds ${KEY_BYTES} bytes in base64url`);
  }
  return key;
}

/**
 * Writes a temporary file and links it, so that no process sees a partial key. The first process
 * wins.
 */
async function makeKey(file: string): Promise<void> {
  const temporary = `${file}.${randomUUID()}.new`;
  try {
    await writeFile(temporary, `${randomBytes(KEY_BYTES).toString("base64url")}\n`, {
      mode: 0o600,
      flush: true,
    });
    await link(temporary, file);
  } catch (error) {
    if (!isCode(error, "EEXIST")) throw error;
  } finally {
    await rm(temporary, { force: true });
  }
}

/**
 * Reads or creates the key (0600) that encrypts the bytes of queries.
 *
 * @throws UnsafeFileError if others can read it, or an error that names the file
 */
export async function openBodyKey(file: string): Promise<Buffer> {
  try {
    return await readKey(file);
  } catch (error) {
    if (!isCode(error, "ENOENT")) throw error;
    await mkdir(path.dirname(file), { recursive: true, mode: 0o700 });
    await makeKey(file);
    return readKey(file);
  }
}
