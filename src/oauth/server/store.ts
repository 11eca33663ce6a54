import type { DatabaseSync, StatementSync } from "node:sqlite";
import { epochSeconds, forgettableBefore } from "../../clock.ts";
import { openWalDatabase } from "../../files/wal-database.ts";

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

/** A record as it is kept: JSON, and the second it was used up in, if it was. */
export interface StoredRecord {
  readonly payload: string;
  readonly consumed: number | undefined;
}

/** A record to keep; `expires` in epoch seconds. */
export interface NewRecord extends Pick<StoredRecord, "payload"> {
  readonly grantId: string | undefined;
  readonly uid: string | undefined;
  readonly expires: number;
}

/** A grant, and what was made under it. */
export interface GrantRow {
  readonly id: string;
  readonly payload: string;
  /** When the newest refresh token was issued, in epoch seconds. */
  readonly renewed: number | undefined;
  /** The tools that were called, as a JSON array of their names. */
  readonly called: string;
}

const grantsSql = `
  SELECT id, payload,
    (SELECT max(json_extract(t.payload, '$.iat')) FROM records AS t
      WHERE t.grant_id = g.id AND t.model = 'RefreshToken' AND t.expires > ?1) AS renewed,
    (SELECT json_group_array(c.payload ORDER BY c.payload) FROM records AS c
      WHERE c.grant_id = g.id AND c.model = 'Call') AS called
  FROM records AS g`;
const allGrantsSql = `${grantsSql} WHERE model = 'Grant' AND expires > ?1`;
/**
 * An account is `username:credential`, so all of a user lie between the two. Without statistics
 * the planner would go through the grants of everybody.
 */
const userGrantsSql = `${grantsSql} INDEXED BY grants_by_account
  WHERE model = 'Grant' AND expires > ?1
  AND json_extract(payload, '$.accountId') > ?2 || ':'
  AND json_extract(payload, '$.accountId') < ?2 || ';'`;

const BUSY_TIMEOUT_MS = 5000;
const SWEEP_MS = 10 * 60 * 1000;

function readRow(row: ReturnType<StatementSync["get"]>): StoredRecord | undefined {
  if (row === undefined || typeof row.payload !== "string") return undefined;
  return {
    payload: row.payload,
    consumed: typeof row.consumed === "number" ? row.consumed : undefined,
  };
}

function readNumber(row: ReturnType<StatementSync["get"]>, column: string): number {
  const value = row?.[column];
  return typeof value === "number" ? value : 0;
}

/**
 * What the authorization server remembers, in an SQLite file (0600) that several processes may
 * hold open. What has expired is not found any more, and removed from time to time.
 */
export class StateStore {
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

  /** Keeps a record in the place of the one that is there; whether it was used up stays. */
  put(model: string, id: string, { payload, grantId, uid, expires }: NewRecord): void {
    this.#prepare(
      `INSERT INTO records (model, id, payload, grant_id, uid, expires) VALUES (?, ?, ?, ?, ?, ?)
       ON CONFLICT (model, id) DO UPDATE SET payload = excluded.payload,
         grant_id = excluded.grant_id, uid = excluded.uid, expires = excluded.expires`,
    ).run(model, id, payload, grantId ?? null, uid ?? null, expires);
  }

  find(model: string, id: string): StoredRecord | undefined {
    const sql = "SELECT payload, consumed FROM records WHERE model = ? AND id = ? AND expires > ?";
    return readRow(this.#prepare(sql).get(model, id, epochSeconds()));
  }

  findByUid(model: string, uid: string): StoredRecord | undefined {
    const sql = "SELECT payload, consumed FROM records WHERE uid = ? AND model = ? AND expires > ?";
    return readRow(this.#prepare(sql).get(uid, model, epochSeconds()));
  }

  /**
   * Uses a record up; false if somebody else already has.
   *
   * @param reuse seconds around the first use in which another one counts; by default there are none
   */
  consume(model: string, id: string, reuse = -1): boolean {
    const sql = `UPDATE records SET consumed = coalesce(consumed, ?1) WHERE model = ?2 AND id = ?3
      AND (consumed IS NULL OR abs(consumed - ?1) <= ?4)`;
    return this.#prepare(sql).run(epochSeconds(), model, id, reuse).changes === 1;
  }

  remove(model: string, id: string): void {
    this.#prepare("DELETE FROM records WHERE model = ? AND id = ?").run(model, id);
  }

  /** Removes what was made under a grant, but not the grant itself. */
  removeByGrant(model: string, grantId: string): void {
    this.#prepare("DELETE FROM records WHERE grant_id = ? AND model = ?").run(grantId, model);
  }

  /** Puts off the end of a client that somebody has let in; never brings it nearer. */
  keepClient(id: string, expires: number): void {
    const sql = `UPDATE records SET expires = max(expires, ?), uid = NULL
      WHERE model = 'Client' AND id = ?`;
    this.#prepare(sql).run(expires, id);
  }

  /** How many clients are registered. Those that nobody has let in yet have their address as uid. */
  countClients(): { unused: number; used: number } {
    const sql = `SELECT count(uid) AS unused, count(*) AS n FROM records
      WHERE model = 'Client' AND expires > ?`;
    const row = this.#prepare(sql).get(epochSeconds());
    const unused = readNumber(row, "unused");
    return { unused, used: readNumber(row, "n") - unused };
  }

  /**
   * Forgets a client: of the used ones the one that was not used for the longest time, of the others
   * the oldest from the address that has the most of them.
   */
  forgetClient(which: "used" | "unused"): void {
    const sql = `DELETE FROM records WHERE model = 'Client' AND id = (
      SELECT id FROM records WHERE model = 'Client' AND (uid IS NULL) = ?
      ORDER BY count(*) OVER (PARTITION BY uid) DESC, expires LIMIT 1)`;
    this.#prepare(sql).run(which === "used" ? 1 : 0);
  }

  /** The grants of a user, or all of them. */
  grants(username?: string): GrantRow[] {
    const rows =
      username === undefined
        ? this.#prepare(allGrantsSql).all(epochSeconds())
        : this.#prepare(userGrantsSql).all(epochSeconds(), username);
    return rows.map((row) => ({
      id: String(row.id),
      payload: String(row.payload),
      renewed: typeof row.renewed === "number" ? row.renewed : undefined,
      called: String(row.called),
    }));
  }

  /** Notes that a tool was called under a grant; what is noted already stays. */
  noteCall(grantId: string, tool: string, expires: number): void {
    this.#prepare(
      `INSERT OR IGNORE INTO records (model, id, payload, grant_id, expires)
       VALUES ('Call', ?1 || ' ' || ?2, ?2, ?1, ?3)`,
    ).run(grantId, tool, expires);
  }

  /** Refuses the token until it would have expired, in epoch seconds. */
  revokeToken(tokenId: string, until: number): void {
    this.#prepare("INSERT OR REPLACE INTO revoked VALUES (?, ?)").run(tokenId, until);
  }

  isTokenRevoked(tokenId: string): boolean {
    return this.#prepare("SELECT 1 FROM revoked WHERE token_id = ?").get(tokenId) !== undefined;
  }

  /** The secret of that name: `made` if there was none yet. */
  secret(name: string, made: Uint8Array): Uint8Array {
    this.#prepare("INSERT OR IGNORE INTO secrets VALUES (?, ?)").run(name, made);
    const value = this.#prepare("SELECT value FROM secrets WHERE name = ?").get(name)?.value;
    if (value instanceof Uint8Array) return value;
    throw new Error(`the secret ${name} cannot be read`);
  }

  /**
   * Removes what has expired.
   *
   * @param running milliseconds for which this process has run
   */
  sweep(running?: number): void {
    this.#prepare("DELETE FROM records WHERE expires <= ?").run(epochSeconds());
    // Without this a token would live again, should the clock have been wrong.
    this.#prepare("DELETE FROM revoked WHERE until < ?").run(forgettableBefore(running));
  }

  /** What cannot be removed now, on a full or busy disk, is removed later; it is not found anyway. */
  #trySweep(): void {
    try {
      this.sweep();
    } catch {}
  }

  close(): void {
    clearInterval(this.#sweeper);
    this.#database.close();
  }
}
