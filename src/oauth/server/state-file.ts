import { existsSync } from "node:fs";
import { mkdir } from "node:fs/promises";
import path from "node:path";
import type { DatabaseSync, StatementSync } from "node:sqlite";
import * as z from "zod";
import { epochSeconds, forgettableBefore } from "../../clock.ts";
import { openWalDatabase } from "../../files/wal-database.ts";
import { keyFilesIn } from "../../identity/key-file.ts";
import type {
  AuthorizationState,
  ClientBounds,
  GrantRow,
  NewRecord,
  StateStore,
  StoredRecord,
} from "./state-store.ts";

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

const grantsSql = `
  SELECT id, payload,
    (SELECT max(json_extract(t.payload, '$.iat')) FROM records AS t
      WHERE t.grant_id = g.id AND t.model = 'RefreshToken' AND t.expires > ?1) AS renewed,
    (SELECT json_group_array(c.payload ORDER BY c.payload) FROM records AS c
      WHERE c.grant_id = g.id AND c.model = 'Call') AS called
  FROM records AS g`;
const allGrantsSql = `${grantsSql} WHERE model = 'Grant' AND expires > ?1`;
/**
 * Accounts are `username:credential`, so a user's accounts lie between `:` and `;`. Without
 * statistics the planner would scan the grants of all users, hence `INDEXED BY`.
 */
const userGrantsSql = `${grantsSql} INDEXED BY grants_by_account
  WHERE model = 'Grant' AND expires > ?1
  AND json_extract(payload, '$.accountId') > ?2 || ':'
  AND json_extract(payload, '$.accountId') < ?2 || ';'`;

const namesShape = z.array(z.string());

const BUSY_TIMEOUT_MS = 5000;
const SWEEP_MS = 10 * 60 * 1000;

type Row = ReturnType<StatementSync["get"]>;

function readNumber(row: Row, column: string): number | undefined {
  const value = row?.[column];
  return typeof value === "number" ? value : undefined;
}

function readRow(row: Row): StoredRecord | undefined {
  if (typeof row?.payload !== "string") return undefined;
  return { payload: row.payload, consumed: readNumber(row, "consumed") };
}

/** Records that end with their grant. */
const MODELS_OF_GRANT = ["RefreshToken", "AuthorizationCode", "Call"];

/**
 * The state in an SQLite file (mode 0600), which several processes may share. Expired records are
 * removed periodically.
 */
export class StateFile implements StateStore {
  readonly #database: DatabaseSync;
  readonly #statements = new Map<string, StatementSync>();
  readonly #sweeper: NodeJS.Timeout;

  /** @throws the error of SQLite or the file system if the file cannot be used */
  constructor(file: string) {
    this.#database = openWalDatabase(file, BUSY_TIMEOUT_MS);
    this.#database.exec(schema);
    this.#trySweep();
    this.#sweeper = setInterval(() => this.#trySweep(), SWEEP_MS).unref();
  }

  #prepare(sql: string): StatementSync {
    const known = this.#statements.get(sql);
    if (known !== undefined) return known;
    const made = this.#database.prepare(sql);
    this.#statements.set(sql, made);
    return made;
  }

  async put(
    model: string,
    id: string,
    { payload, grantId, uid, expires }: NewRecord,
  ): Promise<void> {
    this.#prepare(
      `INSERT INTO records (model, id, payload, grant_id, uid, expires) VALUES (?, ?, ?, ?, ?, ?)
       ON CONFLICT (model, id) DO UPDATE SET payload = excluded.payload,
         grant_id = excluded.grant_id, uid = excluded.uid, expires = excluded.expires`,
    ).run(model, id, payload, grantId ?? null, uid ?? null, expires);
  }

  async find(model: string, id: string): Promise<StoredRecord | undefined> {
    return this.#find(model, id);
  }

  #find(model: string, id: string): StoredRecord | undefined {
    const sql = "SELECT payload, consumed FROM records WHERE model = ? AND id = ? AND expires > ?";
    return readRow(this.#prepare(sql).get(model, id, epochSeconds()));
  }

  async findByUid(model: string, uid: string): Promise<StoredRecord | undefined> {
    const sql = "SELECT payload, consumed FROM records WHERE uid = ? AND model = ? AND expires > ?";
    return readRow(this.#prepare(sql).get(uid, model, epochSeconds()));
  }

  async consume(model: string, id: string, reuse = -1): Promise<boolean> {
    const sql = `UPDATE records SET consumed = coalesce(consumed, ?1) WHERE model = ?2 AND id = ?3
      AND (consumed IS NULL OR abs(consumed - ?1) <= ?4)`;
    return this.#prepare(sql).run(epochSeconds(), model, id, reuse).changes === 1;
  }

  async remove(model: string, id: string): Promise<void> {
    this.#prepare("DELETE FROM records WHERE model = ? AND id = ?").run(model, id);
  }

  async removeByGrant(model: string, grantId: string): Promise<void> {
    this.#prepare("DELETE FROM records WHERE grant_id = ? AND model = ?").run(grantId, model);
  }

  async endGrant(grantId: string): Promise<void> {
    for (const model of MODELS_OF_GRANT) await this.removeByGrant(model, grantId);
    await this.remove("Grant", grantId);
  }

  async keepClient(id: string, expires: number): Promise<void> {
    const sql = `UPDATE records SET expires = max(expires, ?), uid = NULL
      WHERE model = 'Client' AND id = ?`;
    this.#prepare(sql).run(expires, id);
  }

  async makeRoom(bounds: ClientBounds): Promise<void> {
    // Clients that no user has allowed yet have their address as uid.
    const count = `SELECT count(uid) AS unused, count(*) AS n FROM records
      WHERE model = 'Client' AND expires > ?`;
    const row = this.#prepare(count).get(epochSeconds());
    const [unused = 0, all = 0] = [readNumber(row, "unused"), readNumber(row, "n")];
    const forget = `DELETE FROM records WHERE model = 'Client' AND id = (
      SELECT id FROM records WHERE model = 'Client' AND (uid IS NULL) = ?
      ORDER BY count(*) OVER (PARTITION BY uid) DESC, expires LIMIT 1)`;
    if (unused >= bounds.unused) this.#prepare(forget).run(0);
    if (all - unused >= bounds.used) this.#prepare(forget).run(1);
  }

  async grants(username?: string): Promise<GrantRow[]> {
    const rows =
      username === undefined
        ? this.#prepare(allGrantsSql).all(epochSeconds())
        : this.#prepare(userGrantsSql).all(epochSeconds(), username);
    return rows.map((row) => ({
      id: String(row.id),
      payload: String(row.payload),
      renewed: readNumber(row, "renewed"),
      called: namesShape.parse(JSON.parse(String(row.called))),
    }));
  }

  async noteCall(grantId: string, tool: string, expires: number): Promise<void> {
    this.#prepare(
      `INSERT OR IGNORE INTO records (model, id, payload, grant_id, expires)
       VALUES ('Call', ?1 || ' ' || ?2, ?2, ?1, ?3)`,
    ).run(grantId, tool, expires);
  }

  async revokeToken(tokenId: string, until: number): Promise<void> {
    this.#prepare("INSERT OR REPLACE INTO revoked VALUES (?, ?)").run(tokenId, until);
  }

  isTokenRevoked(tokenId: string): boolean {
    return this.#prepare("SELECT 1 FROM revoked WHERE token_id = ?").get(tokenId) !== undefined;
  }

  isGrantEnded(grantId: string): boolean {
    return this.#find("Grant", grantId) === undefined;
  }

  async secret(name: string, made: Uint8Array): Promise<Uint8Array> {
    this.#prepare("INSERT OR IGNORE INTO secrets VALUES (?, ?)").run(name, made);
    const value = this.#prepare("SELECT value FROM secrets WHERE name = ?").get(name)?.value;
    if (value instanceof Uint8Array) return value;
    throw new Error(`the secret ${name} cannot be read`);
  }

  /** @param running milliseconds since this process started */
  sweep(running?: number): void {
    this.#prepare("DELETE FROM records WHERE expires <= ?").run(epochSeconds());
    // Kept longer: otherwise a revoked token would become valid again if the clock had been wrong.
    this.#prepare("DELETE FROM revoked WHERE until < ?").run(forgettableBefore(running));
  }

  /** Ignores a full or busy disk. Queries skip expired records, and the next sweep removes them. */
  #trySweep(): void {
    try {
      this.sweep();
    } catch {}
  }

  async close(): Promise<void> {
    clearInterval(this.#sweeper);
    this.#database.close();
  }
}

export const STATE_FILE = "state.sqlite";

export function stateDirectoryOf(serviceDirectory: string): string {
  return path.join(serviceDirectory, "oauth");
}

/**
 * Opens the state in a directory. Creates it with mode 0700 if it is missing.
 *
 * @throws the error of SQLite or the file system if it cannot be used
 */
export async function openStateIn(directory: string): Promise<AuthorizationState> {
  await mkdir(directory, { recursive: true, mode: 0o700 });
  const keys = keyFilesIn(path.join(directory, "keys"), { checkRead: true });
  return { store: new StateFile(path.join(directory, STATE_FILE)), keys };
}

/** Undefined if the file does not exist. @throws the error of SQLite */
export function findStateIn(directory: string): StateStore | undefined {
  const file = path.join(directory, STATE_FILE);
  return existsSync(file) ? new StateFile(file) : undefined;
}
