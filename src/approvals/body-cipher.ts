import { createCipheriv, createDecipheriv, randomBytes } from "node:crypto";
import { link, mkdir, rm, writeFile } from "node:fs/promises";
import path from "node:path";
import { readGuarded } from "../files/guarded.ts";

const ALGORITHM = "aes-256-gcm";
const KEY_BYTES = 32;
/** NIST SP 800-38D, section 8.2.2: a random one of 96 bits for each of few messages. */
const NONCE_BYTES = 12;
const TAG_BYTES = 16;

/** Encrypts the bytes of queries that wait (AES-256-GCM), each bound to its approval's id. */
export class BodyCipher {
  readonly #key: Buffer;

  constructor(key: Buffer) {
    this.#key = key;
  }

  encrypt(id: string, body: Buffer): Buffer {
    const nonce = randomBytes(NONCE_BYTES);
    const cipher = createCipheriv(ALGORITHM, this.#key, nonce).setAAD(Buffer.from(id));
    const encrypted = [cipher.update(body), cipher.final()];
    return Buffer.concat([nonce, cipher.getAuthTag(), ...encrypted]);
  }

  /** @throws Error if it was encrypted by another key, for another id, or changed */
  decrypt(id: string, sealed: Uint8Array): Buffer {
    const bytes = Buffer.from(sealed);
    const nonce = bytes.subarray(0, NONCE_BYTES);
    const tag = bytes.subarray(NONCE_BYTES, NONCE_BYTES + TAG_BYTES);
    const options = { authTagLength: TAG_BYTES };
    const decipher = createDecipheriv(ALGORITHM, this.#key, nonce, options)
      .setAAD(Buffer.from(id))
      .setAuthTag(tag);
    const rest = bytes.subarray(NONCE_BYTES + TAG_BYTES);
    return Buffer.concat([decipher.update(rest), decipher.final()]);
  }
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

/** Makes a key whole, unless another process was quicker. */
async function makeKey(file: string): Promise<void> {
  const temporary = `${file}.${process.pid}.new`;
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
 * Reads the key (0600), or makes it if there is none.
 *
 * @throws UnsafeFileError if others may read it, or an error that names the file
 */
export async function openBodyCipher(file: string): Promise<BodyCipher> {
  try {
    return new BodyCipher(await readKey(file));
  } catch (error) {
    if (!isCode(error, "ENOENT")) throw error;
    await mkdir(path.dirname(file), { recursive: true, mode: 0o700 });
    await makeKey(file);
    return new BodyCipher(await readKey(file));
  }
}
