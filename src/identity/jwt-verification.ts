import { createHmac, createSecretKey, KeyObject, timingSafeEqual, verify } from "node:crypto";
import type { JWK } from "jose";
import { importJWK } from "jose/key/import";
import { epochSeconds } from "../clock.ts";
import { Refusal } from "../refusal.ts";

/** The signing algorithms that may be configured (RFC 7518, RFC 8037). */
export const signingAlgorithms = ["ES256", "EdDSA", "RS256", "HS256"] as const;
export type SigningAlgorithm = (typeof signingAlgorithms)[number];

type Check = (key: KeyObject, signed: Buffer, signature: Buffer) => boolean;

/**
 * Done by `node:crypto` in place, since WebCrypto hands each signature to another thread: that
 * takes more of both processors than the signature does.
 */
const checks: Readonly<Record<SigningAlgorithm, Check>> = {
  // A signature of ES256 is r and s, 32 bytes each, and never DER (RFC 7518, section 3.4).
  ES256: (key, signed, signature) =>
    verify("sha256", signed, { key, dsaEncoding: "ieee-p1363" }, signature),
  EdDSA: (key, signed, signature) => verify(null, signed, key, signature),
  RS256: (key, signed, signature) => verify("sha256", signed, key, signature),
  HS256: (key, signed, signature) => {
    const mac = createHmac("sha256", key).update(signed).digest();
    return mac.length === signature.length && timingSafeEqual(mac, signature);
  },
};

/** True if `signature` was made over `signed` with the key, by this very algorithm. */
function isSignature(
  algorithm: SigningAlgorithm,
  key: KeyObject,
  signed: Buffer,
  signature: Buffer,
): boolean {
  try {
    return checks[algorithm](key, signed, signature);
  } catch {
    // Whatever else crafted bytes make the library throw, they are no signature.
    return false;
  }
}

/**
 * The key that verifies what the holder of this JWK signs (RFC 7517).
 *
 * @param jwk public, or symmetric
 * @throws Error if it is no key for the algorithm
 */
export async function importVerifier(jwk: JWK, algorithm: SigningAlgorithm): Promise<KeyObject> {
  const key = await importJWK(jwk, algorithm);
  return key instanceof Uint8Array ? createSecretKey(key) : KeyObject.from(key);
}

/** A JSON object as it was parsed: its members may be anything. */
export type JsonObject = Readonly<Record<string, unknown>>;

/** A token that is none, for a reason that the log alone is told. */
export function invalidToken(detail: string, cause?: unknown): Refusal {
  return new Refusal("token_invalid", { detail, cause });
}

/** A JSON Web Signature taken apart (RFC 7515, section 7.1); nothing of it is verified. */
interface CompactJws {
  readonly header: JsonObject;
  readonly payload: Buffer;
  /** The bytes that the signature is over: header and payload as they were sent. */
  readonly signed: Buffer;
  readonly signature: Buffer;
}

const utf8 = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true });

function isObject(value: unknown): value is JsonObject {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

/**
 * The bytes as a JSON object.
 *
 * @throws Refusal `token_invalid`
 */
export function readJson(bytes: Buffer): { text: string; content: JsonObject } {
  try {
    const text = utf8.decode(bytes);
    const content: unknown = JSON.parse(text);
    if (isObject(content)) return { text, content };
  } catch (cause) {
    throw invalidToken("no JSON", cause);
  }
  throw invalidToken("no JSON object");
}

function decode(part: string): Buffer {
  const bytes = Buffer.from(part, "base64url");
  // The decoder passes over what does not belong; there is one right spelling of these bytes.
  if (bytes.toString("base64url") !== part) throw invalidToken("no base64url");
  return bytes;
}

/**
 * Takes a token in the compact form apart.
 *
 * @throws Refusal `token_invalid`
 */
function parseCompactJws(token: string): CompactJws {
  const [header, payload, signature, ...more] = token.split(".");
  if (header === undefined || payload === undefined || signature === undefined || more.length > 0) {
    throw invalidToken("no three parts");
  }
  return {
    header: readJson(decode(header)).content,
    payload: decode(payload),
    signed: Buffer.from(`${header}.${payload}`, "latin1"),
    signature: decode(signature),
  };
}

/** Whose signature counts, and how it is made. */
export interface PinnedKeys {
  readonly algorithm: SigningAlgorithm;
  /** The key that verifies tokens of `kid` now, or undefined if there is none. */
  verifier(kid: string): KeyObject | undefined;
}

/** What an entry point demands of every token: nothing of it is left to the token (RFC 8725, section 3). */
export interface Pin extends PinnedKeys {
  /** The `typ` as this gateway writes it; other spellings of the same media type are refused. */
  readonly type: string;
  readonly issuer: string;
  readonly audience: string;
  /** Characters of the longest token that is worth verifying. */
  readonly longest: number;
}

/** A payload, with the key that has signed it. */
interface SignedPayload {
  readonly header: JsonObject;
  readonly payload: Buffer;
  readonly kid: string;
  readonly key: KeyObject;
}

/** The claims of a token that is what a pin demands; times in epoch seconds. */
interface PinnedClaims extends Omit<SignedPayload, "header" | "payload"> {
  readonly claims: JsonObject;
  readonly notBefore: number;
  readonly expiresAt: number;
}

/** True for a time as claims hold it here: whole epoch seconds. */
export function isSeconds(value: unknown): value is number {
  return typeof value === "number" && Number.isSafeInteger(value) && value >= 0;
}

/**
 * Verifies the signature of a token (RFC 7515, section 5.2). Neither algorithm nor key are taken
 * from the token: it may name one of the keys, and must name the algorithm.
 *
 * @throws Refusal `token_invalid`
 */
export function verifySignature(keys: PinnedKeys, token: string): SignedPayload {
  const { header, payload, signed, signature } = parseCompactJws(token);
  const { alg, kid, crit, b64 } = header;
  if (alg !== keys.algorithm) throw invalidToken("alg");
  // No extension is understood here, and one that must be understood is refused.
  if (crit !== undefined || b64 !== undefined) throw invalidToken("crit or b64");
  const key = typeof kid === "string" ? keys.verifier(kid) : undefined;
  if (key === undefined || typeof kid !== "string") throw invalidToken("unknown kid");
  if (!isSignature(keys.algorithm, key, signed, signature)) throw invalidToken("signature");
  return { header, payload, kid, key };
}

/** @throws Refusal `token_invalid` */
function readPayload(payload: Buffer): JsonObject {
  const { text, content } = readJson(payload);
  // Who signs here writes JSON one way. Another one may say a claim twice.
  if (JSON.stringify(content) !== text) throw invalidToken("not as it was issued");
  return content;
}

/**
 * Verifies a token of this gateway's own (RFC 7519, section 7.2).
 *
 * @throws Refusal `token_expired` for one that is right but for its age, or `token_invalid`
 */
export function verifyPinned(pin: Pin, token: string): PinnedClaims {
  if (token.length > pin.longest) throw invalidToken("too long");
  const { header, payload, kid, key } = verifySignature(pin, token);
  if (header.typ !== pin.type) throw invalidToken("typ");
  const claims = readPayload(payload);
  const { iss, aud, nbf = 0, exp, cnf } = claims;
  if (iss !== pin.issuer) throw invalidToken("claim iss");
  if (aud !== pin.audience) throw invalidToken("claim aud");
  // It would be good with a proof of its key alone (RFC 7800), which no bearer gives.
  if (cnf !== undefined) throw invalidToken("claim cnf");
  const now = epochSeconds();
  if (!isSeconds(nbf) || nbf > now) throw invalidToken("claim nbf");
  if (!isSeconds(exp)) throw invalidToken("claim exp");
  if (exp <= now) throw new Refusal("token_expired");
  return { claims, kid, key, notBefore: nbf, expiresAt: exp };
}
