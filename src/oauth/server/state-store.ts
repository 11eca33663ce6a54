import { existsSync } from "node:fs";
import path from "node:path";
import { DatabaseSync } from "node:sqlite";
import * as z from "zod";
import { epochSeconds } from "../../clock.ts";
import { keyFilesIn } from "../../identity/key-file.ts";
import type { KeyStore, StoredKey } from "../../identity/key-store.ts";
import { STATE_FILE } from "./state-file.ts";

/** A stored record. `consumed` is the epoch second of its first use. */
export interface StoredRecord {
  readonly payload: string;
  readonly consumed: number | undefined;
}

/** `expires` is in epoch seconds. */
export interface NewRecord extends Pick<StoredRecord, "payload"> {
  readonly grantId: string | undefined;
  /** Secondary key. For a registered client it is the address that registered it. */
  readonly uid: string | undefined;
  readonly expires: number;
}

export interface GrantRow {
  readonly id: string;
  readonly payload: string;
  /** Issue time of the newest refresh token, in epoch seconds. */
  readonly renewed: number | undefined;
  readonly called: readonly string[];
}

export interface ClientBounds {
  /** Clients with which no user has completed a login. */
  readonly unused: number;
  readonly used: number;
}

/**
 * Storage of the authorization server. Methods reject with a Refusal while the storage is
 * unavailable. A model is the library's name for a kind of record. Expired records are not found.
 */
export interface StateStore {
  /** Inserts or replaces a record. A replaced record stays consumed. */
  put(model: string, id: string, record: NewRecord): Promise<void>;
  find(model: string, id: string): Promise<StoredRecord | undefined>;
  findByUid(model: string, uid: string): Promise<StoredRecord | undefined>;
  /**
   * Marks a record as used. False if it was already used.
   *
   * @param reuse seconds around the first use in which another use is accepted. Default: none.
   */
  consume(model: string, id: string, reuse?: number): Promise<boolean>;
  remove(model: string, id: string): Promise<void>;
  /** Removes a model's records under a grant, but not the grant. */
  removeByGrant(model: string, grantId: string): Promise<void>;
  /** Ends a grant and all tokens under it. */
  endGrant(grantId: string): Promise<void>;
  /** Extends the lifetime of a client that a user has allowed. Never shortens it. */
  keepClient(id: string, expires: number): Promise<void>;
  /**
   * Makes room for one more client when a limit is reached. Of used clients, the least recently
   * used is removed. Of unused ones, the oldest from the address with the most of them.
   */
  makeRoom(bounds: ClientBounds): Promise<void>;
  grants(username?: string): Promise<readonly GrantRow[]>;
  /** Records that a tool was called under a grant. Does nothing if that is already recorded. */
  noteCall(grantId: string, tool: string, expires: number): Promise<void>;
  /** @param until expiry of the token in epoch seconds */
  revokeToken(tokenId: string, until: number): Promise<void>;
  /** Synchronous, because every request with an access token calls it. */
  isTokenRevoked(tokenId: string): boolean;
  /** Synchronous too. May also be true for expired and unknown grants. */
  isGrantEnded(grantId: string): boolean;
  /** The secret of this name. Stores `made` if there is none yet. */
  secret(name: string, made: Uint8Array): Promise<Uint8Array>;
  close(): Promise<void>;
}

export interface AuthorizationState {
  readonly store: StateStore;
  /** Keys that sign access tokens and nothing else. */
  readonly keys: KeyStore;
}

const optional = <Shape extends z.ZodType>(shape: Shape) =>
  shape.nullable().transform((value) => value ?? undefined);

const recordShape = z.object({
  ...{ model: z.string(), id: z.string(), payload: z.string(), expires: z.int() },
  ...{ grantId: optional(z.string()), uid: optional(z.string()), consumed: optional(z.int()) },
});
const revokedShape = z.object({ tokenId: z.string(), until: z.int() });
const secretShape = z.object({ name: z.string(), value: z.instanceof(Uint8Array) });

export interface StateCopy {
  readonly records: readonly z.infer<typeof recordShape>[];
  readonly revoked: readonly z.infer<typeof revokedShape>[];
  readonly secrets: readonly z.infer<typeof secretShape>[];
  readonly keys: readonly StoredKey[];
}

/**
 * Reads the state in a directory for migration to another store.
 *
 * @returns undefined if there is none
 * @throws KeyFileError, UnsafeFileError or the error of SQLite
 */
export async function copyStateIn(directory: string): Promise<StateCopy | undefined> {
  const file = path.join(directory, STATE_FILE);
  if (!existsSync(file)) return undefined;
  const keys = path.join(directory, "keys");
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
      secrets: z.array(secretShape).parse(rows("SELECT name, value FROM secrets")),
      keys: existsSync(keys) ? await keyFilesIn(keys, { checkRead: true }).read() : [],
    };
  } finally {
    database.close();
  }
}
