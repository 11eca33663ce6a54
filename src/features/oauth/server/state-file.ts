import { randomBytes } from "node:crypto";
import { mkdir } from "node:fs/promises";
import path from "node:path";
import { DatabaseSync } from "node:sqlite";
import * as z from "zod";
import { errorMessage } from "../../../core/base/client-error.ts";
import { epochSeconds, forgettableBefore, steadySeconds } from "../../../core/base/clock.ts";
import { isThere, readGuardedBytes } from "../../../core/base/files/guarded.ts";
import { createOnce, resultCode, SQLITE_BUSY } from "../../../core/base/files/lock.ts";
import { openWalDatabase, waitForUnlock } from "../../../core/base/files/wal-database.ts";
import { memoize } from "../../../core/base/memoize.ts";
import { Refusal } from "../../../core/base/refusal.ts";
import { KEY_BYTES } from "../../../core/base/sealed-bytes.ts";
import { keyFilesIn } from "../../../core/identity/key-file.ts";
import { recordsIn } from "./state-records.ts";
import { type AuthorizationState, SEAL_KEY, type StateStore } from "./state-store.ts";

const schema = `
  CREATE TABLE IF NOT EXISTS records (
    model TEXT NOT NULL, id TEXT NOT NULL, payload TEXT NOT NULL,
    grant_id TEXT, uid TEXT, consumed INTEGER, expires INTEGER NOT NULL,
    PRIMARY KEY (model, id)
  ) STRICT, WITHOUT ROWID;
  CREATE INDEX IF NOT EXISTS records_by_grant ON records (grant_id) WHERE grant_id IS NOT NULL;
  CREATE INDEX IF NOT EXISTS records_by_uid ON records (uid) WHERE uid IS NOT NULL;
  CREATE INDEX IF NOT EXISTS records_by_expiry ON records (expires);
  CREATE INDEX IF NOT EXISTS grants_by_account ON records (json_extract(payload, '$.accountId'))
    WHERE model = 'Grant';
  CREATE TABLE IF NOT EXISTS revoked (
    token_id TEXT PRIMARY KEY, until INTEGER NOT NULL
  ) STRICT, WITHOUT ROWID;
  CREATE TABLE IF NOT EXISTS secrets (
    name TEXT PRIMARY KEY, value BLOB NOT NULL
  ) STRICT, WITHOUT ROWID;
`;

const currentGrantSql =
  "SELECT 1 FROM records WHERE model = 'Grant' AND id = ? AND expires > now()";
const grantsSql = `
  SELECT id, payload,
    (SELECT max(json_extract(t.payload, '$.iat')) FROM records AS t
      WHERE t.grant_id = g.id AND t.model = 'RefreshToken' AND t.expires > $now) AS renewed,
    (SELECT json_group_array(c.payload ORDER BY c.payload) FROM records AS c
      WHERE c.grant_id = g.id AND c.model = 'Call') AS called
  FROM records AS g`;
const allGrantsSql = `${grantsSql} WHERE model = 'Grant' AND expires > $now`;
/**
 * Accounts are `username:credential`, so a user's accounts lie between `:` and `;`. Without
 * statistics the planner would scan the grants of all users, hence `INDEXED BY`.
 */
const userGrantsSql = `${grantsSql} INDEXED BY grants_by_account
  WHERE model = 'Grant' AND expires > $now
  AND json_extract(payload, '$.accountId') > $username || ':'
  AND json_extract(payload, '$.accountId') < $username || ';'`;

const optional = <Shape extends z.ZodType>(shape: Shape) =>
  shape.nullable().transform((value) => value ?? undefined);

const grantShape = z.object({
  id: z.string(),
  payload: z.string(),
  renewed: optional(z.number()),
  called: z.string().transform((names) => z.array(z.string()).parse(JSON.parse(names))),
});
const recordShape = z.object({
  model: z.string(),
  id: z.string(),
  payload: z.string(),
  consumed: optional(z.int()),
  grantId: optional(z.string()),
  uid: optional(z.string()),
  expires: z.int(),
});
const revokedShape = z.object({ tokenId: z.string(), until: z.int() });
const secretShape = z.object({ name: z.string(), value: z.instanceof(Uint8Array) });

/** SQLite's primary result codes for a file that is locked or read-only, and for a disk that fails. */
const unavailable = new Set([SQLITE_BUSY, 8, 10, 13, 14]);
const SWEEP_MS = 10 * 60 * 1000;

/** The state in an SQLite file (mode 0600), which several processes may share. */
export function openStateFile(file: string): StateStore & { sweep(runningMs?: number): void } {
  const database = openWalDatabase(file);
  database.exec(schema);
  const prepare = memoize((sql) => database.prepare(sql));
  const whenUnlocked = waitForUnlock(database);

  /** @throws Refusal `busy` while the file cannot be used */
  async function run<Result>(work: () => Result, isRead = false): Promise<Result> {
    try {
      return isRead ? work() : await whenUnlocked(work);
    } catch (cause) {
      if (!unavailable.has(resultCode(cause) ?? 0)) throw cause;
      const detail = `${file}: ${errorMessage(cause)}`;
      throw new Refusal("busy", { detail, retryAfter: 1, cause });
    }
  }

  database.function("now", epochSeconds);
  const records = recordsIn({
    name: "records",
    now: "now()",
    second: "1",
    since: (time) => `now() - ${time}`,
    lock: "",
    columns: ["payload"],
    write: (_model, _key, payload) => [payload],
    read: ({ payload }) => String(payload),
    keyOf: (id) => id,
    async query(sql, values) {
      const named = values.map((value, at) => [`$${at + 1}`, value] as const);
      // A read does not wait for writes of other processes.
      return run(() => prepare(sql).all(Object.fromEntries(named)), sql.startsWith("select"));
    },
  });

  function sweep(runningMs?: number): void {
    prepare("DELETE FROM records WHERE expires <= ?").run(steadySeconds());
    // Kept longer, so that a revoked token stays revoked after the clock was wrong.
    prepare("DELETE FROM revoked WHERE until < ?").run(forgettableBefore(runningMs));
  }

  /** Ignores a full or busy disk. Queries skip expired records, and the next sweep removes them. */
  const trySweep = () => void whenUnlocked(sweep).catch(() => {});

  trySweep();
  const sweeper = setInterval(trySweep, SWEEP_MS).unref();

  return {
    sweep,
    ...records,
    async endGrant(grantId) {
      await records.removeGrant(grantId);
    },
    async grants(username) {
      const rows =
        username === undefined
          ? prepare(allGrantsSql).all({ now: epochSeconds() })
          : prepare(userGrantsSql).all({ now: epochSeconds(), username });
      return rows.map((row) => grantShape.parse(row));
    },
    noteCall: (grantId, tool, expires) =>
      records.insertMissing("Call", `${grantId} ${tool}`, { payload: tool, grantId, expires }),
    async revokeToken(tokenId, until) {
      await run(() => prepare("INSERT OR REPLACE INTO revoked VALUES (?, ?)").run(tokenId, until));
    },
    isTokenRevoked: (tokenId) =>
      prepare("SELECT 1 FROM revoked WHERE token_id = ?").get(tokenId) !== undefined,
    isGrantEnded: (grantId) => prepare(currentGrantSql).get(grantId) === undefined,
    async secret(name, made) {
      await run(() => prepare("INSERT OR IGNORE INTO secrets VALUES (?, ?)").run(name, made));
      const row = prepare("SELECT name, value FROM secrets WHERE name = ?").get(name);
      return secretShape.parse(row).value;
    },
    async close() {
      clearInterval(sweeper);
      database.close();
    },
  };
}

const STATE_FILE = "state.sqlite";
const SEAL_KEY_FILE = "refresh-tokens.key";

export function stateDirectoryPath(serviceDirectory: string): string {
  return path.join(serviceDirectory, "oauth");
}

/** Opens the state in a directory, which it creates with mode 0700 if it is missing. */
export async function openStateIn(directory: string): Promise<AuthorizationState> {
  await mkdir(directory, { recursive: true, mode: 0o700 });
  const keys = keyFilesIn(path.join(directory, "keys"), { checkRead: true });
  return {
    store: openStateFile(path.join(directory, STATE_FILE)),
    keys,
    sealKey: () => readSealKey(path.join(directory, SEAL_KEY_FILE)),
  };
}

/** Beside the database, so that a copy of that file reveals no refresh token. */
async function readSealKey(file: string): Promise<Uint8Array<ArrayBuffer>> {
  if (!isThere(file)) await createOnce(file, randomBytes(KEY_BYTES));
  const key = await readGuardedBytes(file, { checkRead: true });
  if (key.length !== KEY_BYTES) throw new Error(`${file} must have ${KEY_BYTES} bytes`);
  return new Uint8Array(key);
}

/** Undefined if the file does not exist. */
export function findStateIn(directory: string): StateStore | undefined {
  const file = path.join(directory, STATE_FILE);
  return isThere(file) ? openStateFile(file) : undefined;
}

export type StateCopy = NonNullable<Awaited<ReturnType<typeof copyStateIn>>>;

/** Reads the state for migration to a store. Undefined if the file does not exist. */
export async function copyStateIn(directory: string) {
  const file = path.join(directory, STATE_FILE);
  if (!isThere(file)) return undefined;
  const keys = path.join(directory, "keys");
  const sealKeyFile = path.join(directory, SEAL_KEY_FILE);
  const sealKey = isThere(sealKeyFile) ? await readSealKey(sealKeyFile) : undefined;
  const database = new DatabaseSync(file);
  try {
    const rows = (sql: string, ...values: number[]) => database.prepare(sql).all(...values);
    return {
      records: z.array(recordShape).parse(
        rows(
          `SELECT model, id, payload, grant_id AS grantId, uid, consumed, expires
            FROM records WHERE expires > ?`,
          epochSeconds(),
        ),
      ),
      revoked: z.array(revokedShape).parse(rows("SELECT token_id AS tokenId, until FROM revoked")),
      secrets: [
        ...z.array(secretShape).parse(rows("SELECT name, value FROM secrets")),
        ...(sealKey === undefined ? [] : [{ name: SEAL_KEY, value: sealKey }]),
      ],
      keys: isThere(keys) ? await keyFilesIn(keys, { checkRead: true }).read() : [],
    };
  } finally {
    database.close();
  }
}

/**
 * Opens the state of the authorization server in files. The stack closes them.
 *
 * @param shared the state that replicas share, to be used instead
 */
export async function openState(
  shared: AuthorizationState | undefined,
  serviceDirectory: string,
  opened: AsyncDisposableStack,
): Promise<AuthorizationState> {
  if (shared !== undefined) return shared;
  const state = await openStateIn(stateDirectoryPath(serviceDirectory));
  opened.defer(() => state.store.close());
  return state;
}
