import { randomBytes } from "node:crypto";
import { mkdir } from "node:fs/promises";
import path from "node:path";
import type { DatabaseSync } from "node:sqlite";
import { isThere, readGuarded } from "../../core/base/files/guarded.ts";
import { createOnce } from "../../core/base/files/lock.ts";
import { openWalDatabase, waitForUnlock } from "../../core/base/files/wal-database.ts";
import { Turns } from "../../core/base/queues.ts";
import { KEY_BYTES, seal, unseal } from "../../core/base/sealed-bytes.ts";
import {
  type ApprovalDatabase,
  ApprovalStore,
  type ApprovalTransaction,
  type ApprovalValue,
  approvalFilePath,
  dueSql,
  tablesSql,
} from "./approval.ts";

/** An SQLite file (0600) that several processes may have open. */
function approvalDatabase(database: DatabaseSync, key: Buffer): ApprovalDatabase {
  database.exec(tablesSql);
  const turns = new Turns();
  const whenUnlocked = waitForUnlock(database);

  function all(sql: string, values: readonly ApprovalValue[]): object[] {
    const named = values.map((value, at) => [`$${at + 1}`, value] as const);
    return database.prepare(sql).all(Object.fromEntries(named));
  }

  async function transact<Result>(
    work: (transaction: ApprovalTransaction) => Promise<Result>,
    since: number,
  ): Promise<Result> {
    await whenUnlocked(() => database.exec("BEGIN IMMEDIATE"), since);
    try {
      const result = await work({
        query: async (sql, ...values) => all(sql, values),
        now: Date.now(),
      });
      database.exec("COMMIT");
      return result;
    } catch (error) {
      if (database.isTransaction) database.exec("ROLLBACK");
      throw error;
    }
  }

  return {
    // One at a time within this process. The file's write lock excludes other processes.
    transaction(work) {
      const since = performance.now();
      return turns.run(() => transact(work, since));
    },
    async hasDue(keepMs) {
      return all(dueSql("main", "$2"), [keepMs, Date.now()]).length > 0;
    },
    encrypt: (id, body) => seal(key, body, id),
    decrypt: (id, sealed) => unseal(key, sealed, id),
    async close() {
      await turns.end();
      database.close();
    },
  };
}

/** Creates the file and the key (0600) if they are missing. */
export async function openApprovalsIn(
  serviceDirectory: string,
  keepDays: number,
): Promise<ApprovalStore> {
  const key = await openBodyKey(path.join(serviceDirectory, "approvals.key"));
  const database = openWalDatabase(approvalFilePath(serviceDirectory));
  try {
    return new ApprovalStore(approvalDatabase(database, key), keepDays);
  } catch (error) {
    database.close();
    throw error;
  }
}

/** @throws UnsafeFileError if others can read the key, or an error that names the file */
export async function openBodyKey(file: string): Promise<Buffer> {
  if (!isThere(file)) {
    await mkdir(path.dirname(file), { recursive: true, mode: 0o700 });
    await createOnce(file, `${randomBytes(KEY_BYTES).toString("base64url")}\n`);
  }
  const text = (await readGuarded(file, { checkRead: true })).trim();
  const key = Buffer.from(text, "base64url");
  if (key.length !== KEY_BYTES || key.toString("base64url") !== text) {
    throw new Error(`${file} is not a key of ${KEY_BYTES} bytes in base64url`);
  }
  return key;
}
