import { readdir } from "node:fs/promises";
import path from "node:path";
import { calculateJwkThumbprint, exportJWK, generateKeyPair, generateSecret, type JWK } from "jose";
import * as z from "zod";
import { replaceFile } from "../files/atomic.ts";
import { readGuarded } from "../files/guarded.ts";

/** The signing algorithms that may be configured (RFC 7518, RFC 8037). */
export const signingAlgorithms = ["ES256", "EdDSA", "RS256", "HS256"] as const;
export type SigningAlgorithm = (typeof signingAlgorithms)[number];

const keyFileShape = z.strictObject({
  kid: z.string().regex(/^[A-Za-z0-9_-]{1,64}$/),
  alg: z.enum(signingAlgorithms),
  /** Epoch seconds. */
  created: z.int().nonnegative(),
  jwk: z.looseObject({ kty: z.string() }),
});

/** A signing key as it lies in its file, `keys/<kid>.json`: private. */
export type StoredKey = z.infer<typeof keyFileShape>;

/** A file among the keys cannot be used. */
export class KeyFileError extends Error {
  constructor(file: string, reason: string) {
    super(`${file}: ${reason}`);
    this.name = "KeyFileError";
  }
}

function parseKeyFile(text: string, file: string): StoredKey {
  let content: unknown;
  try {
    content = JSON.parse(text);
  } catch {
    // The parser's own message would quote the file, which is a secret.
    throw new KeyFileError(file, "is not JSON");
  }
  const parsed = keyFileShape.safeParse(content);
  if (parsed.success) return parsed.data;
  const [issue] = parsed.error.issues;
  throw new KeyFileError(file, `is not a signing key: \`${issue?.path.join(".") ?? ""}\` is wrong`);
}

/**
 * Reads every key in `directory`, newest first.
 *
 * @throws KeyFileError or UnsafeFileError if one of them cannot be used
 */
export async function readKeyFiles(
  directory: string,
  options: { checkRead: boolean },
): Promise<StoredKey[]> {
  const names = (await readdir(directory)).filter((name) => /^[^.].*\.json$/.test(name));
  const keys = await Promise.all(
    names.map(async (name) => {
      const file = path.join(directory, name);
      return parseKeyFile(await readGuarded(file, options), file);
    }),
  );
  return keys.sort((a, b) => b.created - a.created || a.kid.localeCompare(b.kid));
}

async function generate(alg: SigningAlgorithm): Promise<JWK> {
  const options = { extractable: true };
  if (alg === "HS256") return exportJWK(await generateSecret(alg, options));
  const { privateKey } = await generateKeyPair(alg, options);
  return exportJWK(privateKey);
}

/** A symmetric key's thumbprint would be a hash of the secret, so such a key gets a random name. */
async function nameKey(jwk: JWK): Promise<string> {
  return jwk.kty === "oct" ? crypto.randomUUID() : calculateJwkThumbprint(jwk);
}

/** Makes a key and puts it into `directory` with mode 0600. */
export async function createKeyFile(directory: string, alg: SigningAlgorithm): Promise<StoredKey> {
  const jwk = await generate(alg);
  const kid = await nameKey(jwk);
  const stored = keyFileShape.parse({ kid, alg, created: Math.floor(Date.now() / 1000), jwk });
  await replaceFile(path.join(directory, `${kid}.json`), `${JSON.stringify(stored, null, 2)}\n`);
  return stored;
}
