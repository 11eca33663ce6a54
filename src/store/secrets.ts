import { createHash, hash, randomBytes } from "node:crypto";
import { readGuarded } from "../files/guarded.ts";
import { KEY_BYTES, seal, unseal } from "../sealed-bytes.ts";

/** Length of the key digest that tells which key decrypts a ciphertext. */
const NAME_BYTES = 4;

/** The key file cannot be used, or does not decrypt the content of the store. */
export class StoreKeyError extends Error {}

function nameOf(key: Buffer): Buffer {
  return createHash("sha256").update(key).digest().subarray(0, NAME_BYTES);
}

/** Hashes an id that grants access, so that a reader of the store cannot present it. */
export function keyOf(id: string): string {
  return hash("sha256", id, "base64url");
}

/** Encrypts with the first key of `store.key_file`. Every key in the file decrypts. */
export class Secrets {
  readonly #first: Buffer;
  readonly #keys: ReadonlyMap<string, Buffer>;

  constructor(keys: readonly [Buffer, ...Buffer[]]) {
    this.#first = keys[0];
    this.#keys = new Map(keys.map((key) => [nameOf(key).toString("hex"), key]));
  }

  /** @param place what the text is and where it is stored; it does not decrypt in another place */
  encrypt(text: string, place: string): string {
    return this.encryptBytes(Buffer.from(text), place).toString("base64url");
  }

  /** @throws StoreKeyError if no key decrypts it, or if it was changed or moved */
  decrypt(sealed: string, place: string): string {
    return this.decryptBytes(Buffer.from(sealed, "base64url"), place).toString("utf8");
  }

  encryptBytes(content: Buffer, place: string): Buffer {
    return Buffer.concat([nameOf(this.#first), seal(this.#first, content, place)]);
  }

  decryptBytes(bytes: Buffer, place: string): Buffer {
    const key = this.#keys.get(bytes.subarray(0, NAME_BYTES).toString("hex"));
    if (key === undefined) {
      throw new StoreKeyError(`${place} is encrypted by a key that store.key_file does not hold`);
    }
    try {
      return unseal(key, bytes.subarray(NAME_BYTES), place);
    } catch {
      throw new StoreKeyError(`${place} does not open: it was changed in the store`);
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
  throw new StoreKeyError(`${file}: must hold lines of 32 random bytes each in base64url`);
}
