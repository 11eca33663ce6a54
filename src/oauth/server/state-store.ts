import { existsSync } from "node:fs";
import path from "node:path";
import { DatabaseSync } from "node:sqlite";
import * as z from "zod";
import { epochSeconds } from "../../clock.ts";
import { keyFilesIn } from "../../identity/key-file.ts";
import type { KeyStore, StoredKey } from "../../identity/key-store.ts";
import { STATE_FILE } from "./state-file.ts";

/** A record as it is kept: JSON, and the second it was used up in, if it was. */
export interface StoredRecord {
  readonly payload: string;
  readonly consumed: number | undefined;
}

/** A record to keep; `expires` in epoch seconds. */
export interface NewRecord extends Pick<StoredRecord, "payload"> {
  readonly grantId: string | undefined;
  /** By which it is found, too. That of a registered client is the address it came from. */
  readonly uid: string | undefined;
  readonly expires: number;
}

/** A grant, and what was made under it. */
export interface GrantRow {
  readonly id: string;
  readonly payload: string;
  /** When the newest refresh token was issued, in epoch seconds. */
  readonly renewed: number | undefined;
  /** The tools that were called, in the order of their names. */
  readonly called: readonly string[];
}

/** How many registered clients are kept at one time. */
export interface ClientBounds {
  /** That nobody has finished a login with. */
  readonly unused: number;
  readonly used: number;
}

/**
 * What the authorization server remembers, wherever it is held: an SQLite file is one such place
 * (`state-file.ts`), and what it looks like concerns nobody else. A place that is out of reach
 * refuses what it is asked for by a Refusal. Records have a model, which is
 * the library's name for their kind. What has expired is not found any more.
 */
export interface StateStore {
  /** Keeps a record in the place of the one that is there; whether it was used up stays. */
  put(model: string, id: string, record: NewRecord): Promise<void>;
  find(model: string, id: string): Promise<StoredRecord | undefined>;
  findByUid(model: string, uid: string): Promise<StoredRecord | undefined>;
  /**
   * Uses a record up; false if somebody else already has.
   *
   * @param reuse seconds around the first use in which another one counts; by default there are none
   */
  consume(model: string, id: string, reuse?: number): Promise<boolean>;
  remove(model: string, id: string): Promise<void>;
  /** Removes what was made under a grant, but not the grant itself. */
  removeByGrant(model: string, grantId: string): Promise<void>;
  /** Ends a grant, and with it every token under it. */
  endGrant(grantId: string): Promise<void>;
  /** Puts off the end of a client that somebody has let in; never brings it nearer. */
  keepClient(id: string, expires: number): Promise<void>;
  /**
   * Makes room for one more client: where there are as many as there may be, it forgets of the used
   * ones the one that was not used for the longest time, and of the others the oldest from the
   * address that has the most of them.
   */
  makeRoom(bounds: ClientBounds): Promise<void>;
  /** The grants of a user, or all of them. */
  grants(username?: string): Promise<readonly GrantRow[]>;
  /** Notes that a tool was called under a grant; what is noted already stays. */
  noteCall(grantId: string, tool: string, expires: number): Promise<void>;
  /** Refuses the token until it would have expired, in epoch seconds. */
  revokeToken(tokenId: string, until: number): Promise<void>;
  /** Told at once, since each request with an access token asks. */
  isTokenRevoked(tokenId: string): boolean;
  /** Likewise; a grant that has expired, or that there never was, may be taken for ended too. */
  isGrantEnded(grantId: string): boolean;
  /** The secret of that name: `made` if there was none yet. */
  secret(name: string, made: Uint8Array): Promise<Uint8Array>;
  close(): Promise<void>;
}

/** All that an authorization server keeps. */
export interface AuthorizationState {
  readonly store: StateStore;
  /** Those that sign its access tokens, and nothing else. */
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

/** All that an authorization server has kept in files. */
export interface StateCopy {
  readonly records: readonly z.infer<typeof recordShape>[];
  readonly revoked: readonly z.infer<typeof revokedShape>[];
  readonly secrets: readonly z.infer<typeof secretShape>[];
  readonly keys: readonly StoredKey[];
}

/**
 * Reads what a directory holds of the state, for another place to keep it.
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
