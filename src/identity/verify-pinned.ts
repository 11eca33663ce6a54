import type { KeyObject } from "node:crypto";
import { epochSeconds } from "../clock.ts";
import { Refusal } from "../refusal.ts";
import { invalidToken, type JsonObject, parseCompactJws, readJson } from "./compact-jws.ts";
import { isSignature, type SigningAlgorithm } from "./signature.ts";

/** Whose signature counts, and how it is made. */
export interface PinnedKeys {
  readonly algorithm: SigningAlgorithm;
  /** The key that verifies tokens of `kid` now, or undefined if there is none. */
  verifier(kid: string): KeyObject | undefined;
}

/** What a door demands of every token: nothing of it is left to the token (RFC 8725, section 3). */
export interface Pin extends PinnedKeys {
  /** The `typ` as this gateway writes it; other spellings of the same media type are refused. */
  readonly type: string;
  readonly issuer: string;
  readonly audience: string;
  /** Characters of the longest token that is worth verifying. */
  readonly longest: number;
}

/** A payload, with the key that has signed it. */
export interface SignedPayload {
  readonly header: JsonObject;
  readonly payload: Buffer;
  readonly kid: string;
  readonly key: KeyObject;
}

/** The claims of a token that is what a pin demands; times in epoch seconds. */
export interface PinnedClaims extends Omit<SignedPayload, "header" | "payload"> {
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
