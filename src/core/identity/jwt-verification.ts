import { createHmac, createSecretKey, KeyObject, timingSafeEqual, verify } from "node:crypto";
import type { JWK } from "jose";
import { importJWK } from "jose/key/import";
import { epochSeconds } from "../base/clock.ts";
import { Refusal } from "../base/refusal.ts";
import { isObject, type JsonObject, parseUnrounded } from "../json/exact.ts";

/** Signing algorithms that may be configured (RFC 7518, RFC 8037). */
export const signingAlgorithms = ["ES256", "EdDSA", "RS256", "HS256"] as const;
export type SigningAlgorithm = (typeof signingAlgorithms)[number];

type Check = (key: KeyObject, signed: Buffer, signature: Buffer) => boolean;

/** Not WebCrypto, which uses another thread at more cost than the signature. */
const checks: Readonly<Record<SigningAlgorithm, Check>> = {
  // ES256 signatures are r and s, 32 bytes each, never DER (RFC 7518, section 3.4).
  ES256: (key, signed, signature) =>
    verify("sha256", signed, { key, dsaEncoding: "ieee-p1363" }, signature),
  EdDSA: (key, signed, signature) => verify(null, signed, key, signature),
  RS256: (key, signed, signature) => verify("sha256", signed, key, signature),
  HS256: (key, signed, signature) => {
    const mac = createHmac("sha256", key).update(signed).digest();
    return mac.length === signature.length && timingSafeEqual(mac, signature);
  },
};

/** @param jwk public, or symmetric @throws Error if the key does not fit the algorithm */
export async function importVerifier(jwk: JWK, algorithm: SigningAlgorithm): Promise<KeyObject> {
  const key = await importJWK(jwk, algorithm);
  return key instanceof Uint8Array ? createSecretKey(key) : KeyObject.from(key);
}

export function invalidToken(detail: string, cause?: unknown): Refusal {
  return new Refusal("token_invalid", { detail, cause });
}

const utf8 = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true });

/** @throws Refusal `token_invalid` */
function readJson(bytes: Buffer): { text: string; content: JsonObject } {
  try {
    const text = utf8.decode(bytes);
    const content: unknown = parseUnrounded(text, Number);
    if (isObject(content)) return { text, content };
  } catch (cause) {
    throw invalidToken("not JSON", cause);
  }
  throw invalidToken("not a JSON object");
}

function decode(part: string): Buffer {
  const bytes = Buffer.from(part, "base64url");
  // The decoder ignores invalid characters. Only the canonical spelling is accepted.
  if (bytes.toString("base64url") !== part) throw invalidToken("not base64url");
  return bytes;
}

/** Parses the compact form (RFC 7515, section 7.1). */
function parseCompactJws(token: string) {
  const [header, payload, signature, ...more] = token.split(".");
  if (header === undefined || payload === undefined || signature === undefined || more.length > 0) {
    throw invalidToken("not three parts");
  }
  return {
    header: readJson(decode(header)).content,
    payload: decode(payload),
    signed: Buffer.from(`${header}.${payload}`, "latin1"),
    signature: decode(signature),
  };
}

export interface PinnedKeys {
  readonly algorithm: SigningAlgorithm;
  verifier(kid: string): KeyObject | undefined;
}

/** The requirements of an endpoint, independent of the token (RFC 8725, section 3). */
export interface Pin extends PinnedKeys {
  /** The exact `typ`. Other spellings of the same media type are refused. */
  readonly type: string;
  readonly issuer: string;
  /** One, or several of which a token has one. */
  readonly audience: string | readonly string[];
  readonly longest: number;
}

/** Whole epoch seconds, the only times in claims here. */
export function isSeconds(value: unknown): value is number {
  return typeof value === "number" && Number.isSafeInteger(value) && value >= 0;
}

/**
 * Verifies a token's signature (RFC 7515, section 5.2). The token may only select one of the pinned
 * keys, and must name the pinned algorithm.
 *
 * @throws Refusal `token_invalid`
 */
export function verifySignature(keys: PinnedKeys, token: string) {
  const { header, payload, signed, signature } = parseCompactJws(token);
  const { alg, kid, crit, b64 } = header;
  if (alg !== keys.algorithm) throw invalidToken("alg");
  // No extensions are supported, and a critical one must be refused.
  if (crit !== undefined || b64 !== undefined) throw invalidToken("crit or b64");
  const key = typeof kid === "string" ? keys.verifier(kid) : undefined;
  if (key === undefined || typeof kid !== "string") throw invalidToken("unknown kid");
  let isGood = false;
  try {
    isGood = checks[keys.algorithm](key, signed, signature);
  } catch {
    // Crafted bytes can cause errors.
  }
  if (!isGood) throw invalidToken("signature");
  return { header, payload, kid, key };
}

function textOrNone(value: unknown): string | undefined {
  return typeof value === "string" ? value : undefined;
}

/**
 * Verifies one of this gateway's own tokens (RFC 7519, section 7.2).
 *
 * @throws Refusal `token_expired` if only its age is wrong, otherwise `token_invalid`
 */
export function verifyPinned(pin: Pin, token: string) {
  if (token.length > pin.longest) throw invalidToken("too long");
  const { header, payload, kid, key } = verifySignature(pin, token);
  if (header.typ !== pin.type) throw invalidToken("typ");
  const { text, content: claims } = readJson(payload);
  // The gateway serializes JSON in one way. Another spelling could repeat a claim.
  if (JSON.stringify(claims) !== text) throw invalidToken("not as it was issued");
  const { iss, aud, nbf = 0, exp, cnf, sub, jti, client_id: clientId } = claims;
  if (iss !== pin.issuer) throw invalidToken("claim iss");
  if (![pin.audience].flat().some((one) => one === aud)) throw invalidToken("claim aud");
  // Requires proof of possession of a key (RFC 7800), which a bearer request does not have.
  if (cnf !== undefined) throw invalidToken("claim cnf");
  const now = epochSeconds();
  if (!isSeconds(nbf) || nbf > now) throw invalidToken("claim nbf");
  if (!isSeconds(exp)) throw invalidToken("claim exp");
  if (exp <= now) {
    const [user, tokenId, client] = [sub, jti, clientId].map(textOrNone);
    throw new Refusal("token_expired", { token: { user, tokenId, client } });
  }
  return { claims, kid, key, notBefore: nbf, expiresAt: exp };
}
