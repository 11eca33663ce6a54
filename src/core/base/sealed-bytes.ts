import { createCipheriv, createDecipheriv, hash, randomBytes } from "node:crypto";

const ALGORITHM = "aes-256-gcm";
export const KEY_BYTES = 32;
/** Section 8.2.2: a random nonce of 96 bits per message, for a small number of messages. */
const NONCE_BYTES = 12;
const TAG_BYTES = 16;

/**
 * Encrypts bytes. @param place what they are and where they are stored; they do not decrypt
 * elsewhere
 */
export function seal(key: Buffer, content: Buffer, place: string): Buffer {
  const nonce = randomBytes(NONCE_BYTES);
  const cipher = createCipheriv(ALGORITHM, key, nonce).setAAD(Buffer.from(place));
  const encrypted = [cipher.update(content), cipher.final()];
  return Buffer.concat([nonce, cipher.getAuthTag(), ...encrypted]);
}

/** @throws Error if the bytes were sealed with another key, moved or changed */
export function unseal(key: Buffer, sealed: Uint8Array, place: string): Buffer {
  const nonce = sealed.subarray(0, NONCE_BYTES);
  const start = NONCE_BYTES + TAG_BYTES;
  const decipher = createDecipheriv(ALGORITHM, key, nonce, { authTagLength: TAG_BYTES })
    .setAAD(Buffer.from(place))
    .setAuthTag(sealed.subarray(NONCE_BYTES, start));
  return Buffer.concat([decipher.update(sealed.subarray(start)), decipher.final()]);
}

/** Hashes an id that grants access, so that a reader of the storage cannot present it. */
export function hashId(id: string): string {
  return hash("sha256", id, "base64url");
}
