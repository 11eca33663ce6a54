import { createRemoteJWKSet, customFetch, type JWTVerifyGetKey } from "jose";
import * as z from "zod";
import { discover, fetchJson } from "./issuer-metadata.ts";

/** Milliseconds until metadata and keys are there: whoever shows a token waits for them. */
const TIMEOUT_MS = 5000;
/** Milliseconds for which keys are used without asking again. */
const KEYS_AGE_MS = 600_000;
/** Milliseconds between two fetches for the sake of unknown keys, which anyone can make up. */
const COOLDOWN_MS = 5000;
/** Milliseconds for which an issuer that was out of reach is left alone. */
const RETRY_MS = 2000;
/** The same in whole seconds, for whoever is told to come again. */
export const RETRY_SECONDS = Math.ceil(RETRY_MS / 1000);

const keySet = z.looseObject({ keys: z.array(z.looseObject({ kty: z.string() })) });

/** An issuer whose keys cannot be had just now. */
export class IssuerOutOfReach extends Error {
  override readonly name = "IssuerOutOfReach";
}

/**
 * The keys of an issuer (RFC 7517), found by its metadata and fetched when they are needed: the
 * first time, when they are old, and for a key that is not known. Keys that are known go on being
 * used while the issuer is out of reach.
 *
 * The function throws IssuerOutOfReach, or the library's error if there is no such key.
 */
export function createIssuerKeys(issuer: string): JWTVerifyGetKey {
  let retryAt = 0;

  async function fetchKeys(): Promise<Response> {
    if (performance.now() < retryAt) throw new IssuerOutOfReach("it was so a moment ago");
    try {
      const signal = AbortSignal.timeout(TIMEOUT_MS);
      const { jwks_uri: uri } = await discover(issuer, signal);
      return Response.json(keySet.parse(await fetchJson(new URL(uri), signal)));
    } catch (cause) {
      retryAt = performance.now() + RETRY_MS;
      const detail = cause instanceof Error ? cause.message : "unknown";
      throw new IssuerOutOfReach(detail, { cause });
    }
  }

  return createRemoteJWKSet(new URL(issuer), {
    cacheMaxAge: KEYS_AGE_MS,
    cooldownDuration: COOLDOWN_MS,
    [customFetch]: fetchKeys,
  });
}
