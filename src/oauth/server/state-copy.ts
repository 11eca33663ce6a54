import { existsSync } from "node:fs";
import path from "node:path";
import { DatabaseSync } from "node:sqlite";
import * as z from "zod";
import { epochSeconds } from "../../clock.ts";
import { keyFilesIn } from "../../identity/key-file.ts";
import type { StoredKey } from "../../identity/key-store.ts";
import { STATE_FILE } from "./state-file.ts";

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
