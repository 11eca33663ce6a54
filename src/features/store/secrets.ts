import { createHash, randomBytes } from "node:crypto";
import { DatabaseError } from "pg";
import { readGuarded } from "../../core/base/files/guarded.ts";
import { Refusal } from "../../core/base/refusal.ts";
import { KEY_BYTES, seal, unseal } from "../../core/base/sealed-bytes.ts";
import type { Database, Query, Row } from "./database.ts";

const KEY_ID_BYTES = 4;

/** The key file cannot be used, or does not decrypt the content of the store. */
export class StoreKeyError extends Error {}

function keyId(key: Buffer): Buffer {
  return createHash("sha256").update(key).digest().subarray(0, KEY_ID_BYTES);
}

/** Encrypts with the first key of `store.key_file`. Every key in the file decrypts. */
export class Secrets {
  readonly #first: Buffer;
  readonly #keys: ReadonlyMap<string, Buffer>;

  constructor(keys: readonly [Buffer, ...Buffer[]]) {
    this.#first = keys[0];
    this.#keys = new Map(keys.map((key) => [keyId(key).toString("hex"), key]));
  }

  /** @param context what the text is and where it is stored; required again to decrypt it */
  encrypt(text: string, context: string): string {
    return this.encryptBytes(Buffer.from(text), context).toString("base64url");
  }

  /** @throws StoreKeyError if no key decrypts it, or if it was changed or moved */
  decrypt(sealed: string, context: string): string {
    return this.decryptBytes(Buffer.from(sealed, "base64url"), context).toString("utf8");
  }

  encryptBytes(content: Buffer, context: string): Buffer {
    return Buffer.concat([keyId(this.#first), seal(this.#first, content, context)]);
  }

  /** True if these bytes are encrypted with the first key. */
  isCurrent(bytes: Buffer): boolean {
    return bytes.subarray(0, KEY_ID_BYTES).equals(keyId(this.#first));
  }

  decryptBytes(bytes: Buffer, context: string): Buffer {
    const key = this.#keys.get(bytes.subarray(0, KEY_ID_BYTES).toString("hex"));
    if (key === undefined) {
      throw new StoreKeyError(`${context} is encrypted with a key that is not in store.key_file`);
    }
    try {
      return unseal(key, bytes.subarray(KEY_ID_BYTES), context);
    } catch {
      throw new StoreKeyError(`${context} cannot be decrypted: it was changed in the store`);
    }
  }
}

export function makeSecretLine(): string {
  return randomBytes(KEY_BYTES).toString("base64url");
}

/** Reads `store.key_file`. @throws StoreKeyError, UnsafeFileError or the file system's error */
export async function readSecrets(file: string, options: { checkRead: boolean }): Promise<Secrets> {
  const lines = (await readGuarded(file, options)).split("\n").map((line) => line.trim());
  const keys = lines.filter((line) => line !== "").map((line) => Buffer.from(line, "base64url"));
  const [first, ...others] = keys;
  const isGood = lines.every((line) => line === "" || /^[\w-]{43}$/.test(line));
  if (first !== undefined && isGood) return new Secrets([first, ...others]);
  throw new StoreKeyError(`${file}: each line must be 32 random bytes in base64url`);
}

export interface SealedTable {
  readonly table: string;
  readonly keys: readonly string[];
  readonly column: string;
  /** Bound to the ciphertext, so that a value moved to another row does not decrypt. */
  readonly contextOf: (row: Row) => string;
}

const BATCH = 100;
/** Shorter than `deadlock_timeout`, so that in a deadlock this gives way and not a replica. */
const LOCK_TIMEOUT_MS = 500;
const MAX_WAITS = 120;
const MAX_PASSES = 5;

function isLockTimeout(error: unknown): boolean {
  const cause = error instanceof Refusal ? error.cause : undefined;
  return cause instanceof DatabaseError && cause.code === "55P03";
}

function sealedBytes(sealed: unknown): Buffer {
  return sealed instanceof Buffer ? sealed : Buffer.from(String(sealed), "base64url");
}

/** @returns how many values were encrypted with another key */
async function reencryptOnce(
  database: Database,
  secrets: Secrets,
  { table, keys, column, contextOf }: SealedTable,
): Promise<number> {
  const names = keys.join(", ");
  const values = keys.map((_, at) => `$${at + 1}`).join(", ");
  const selectSql = `select ${names}, ${column} as sealed from ${table}
    where (${names}) > (${values}) and ${column} <> '' order by ${names} limit ${BATCH}`;
  const updateSql = `update ${table} set ${column} = $${keys.length + 1} where (${names}) = (${values})`;

  async function reencryptBatch(query: Query, from: readonly unknown[]) {
    await query(`set local lock_timeout = ${LOCK_TIMEOUT_MS}`);
    const rows = await query(`${selectSql} for update`, from);
    const old = rows.filter(({ sealed }) => !secrets.isCurrent(sealedBytes(sealed)));
    for (const row of old) {
      const context = contextOf(row);
      const renewed = secrets.encryptBytes(
        secrets.decryptBytes(sealedBytes(row.sealed), context),
        context,
      );
      const written = row.sealed instanceof Buffer ? renewed : renewed.toString("base64url");
      await query(updateSql, [...keys.map((name) => row[name]), written]);
    }
    return { renewed: old.length, end: rows.at(-1) };
  }

  let count = 0;
  let waits = 0;
  let last: unknown[] | undefined = keys.map(() => "");
  while (last !== undefined) {
    const from: unknown[] = last;
    try {
      const { renewed, end } = await database.transaction((query) => reencryptBatch(query, from));
      count += renewed;
      last = end && keys.map((name) => end[name]);
    } catch (error) {
      waits += 1;
      if (!isLockTimeout(error) || waits === MAX_WAITS) throw error;
    }
  }
  return count;
}

/**
 * Encrypts again, with the first line of the key file, what is encrypted with another line. Repeats
 * this until nothing is left, since a replica that still has the old file may be writing.
 *
 * @returns how many values there were
 * @throws StoreKeyError if such a replica writes all the time
 */
export async function reencrypt(
  database: Database,
  secrets: Secrets,
  sealed: SealedTable,
): Promise<number> {
  let count = 0;
  for (let pass = 0; pass < MAX_PASSES; pass++) {
    const renewed = await reencryptOnce(database, secrets, sealed);
    if (renewed === 0) return count;
    count += renewed;
  }
  throw new StoreKeyError(
    `a replica keeps writing to ${sealed.table} with another key: restart it, and run \`gatehouse store rekey\` again`,
  );
}
