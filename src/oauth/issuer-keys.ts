import { createRemoteJWKSet, customFetch, errors, type JWTVerifyGetKey } from "jose";
import * as z from "zod";
import { isConfidential } from "../config/addresses.ts";

const MAX_BYTES = 256 * 1024;

const shape = z.looseObject({ issuer: z.string(), jwks_uri: z.url() });

/** What the gateway needs to know of an authorization server (RFC 8414, section 2). */
type IssuerMetadata = z.infer<typeof shape>;

/** Where an issuer's metadata may be: RFC 8414, section 3.1, and OpenID Connect Discovery. */
function metadataUrls(issuer: string): URL[] {
  const { origin, pathname } = new URL(issuer);
  const path = pathname.replace(/\/$/, "");
  return [
    new URL(`${origin}/.well-known/oauth-authorization-server${path}`),
    new URL(`${origin}/.well-known/openid-configuration${path}`),
    new URL(`${origin}${path}/.well-known/openid-configuration`),
  ];
}

/**
 * Fetches a document of an issuer, bounded in size.
 *
 * @throws Error if it is not there, not JSON, or somewhere else
 */
async function fetchJson(url: URL, signal: AbortSignal): Promise<unknown> {
  const answer = await fetch(url, {
    redirect: "error",
    signal,
    headers: { accept: "application/json" },
  });
  if (!answer.ok || answer.body === null) throw new Error(`${url} answered ${answer.status}`);
  const chunks: Uint8Array[] = [];
  let length = 0;
  for await (const chunk of answer.body) {
    length += chunk.length;
    if (length > MAX_BYTES) throw new Error(`${url} answered with too much`);
    chunks.push(chunk);
  }
  return JSON.parse(Buffer.concat(chunks).toString());
}

/** Keys that come over plain HTTP could be anybody's, but for those of this very machine. */
function requireConfidential(url: URL): void {
  if (!isConfidential(url)) throw new Error(`${url.origin} is not reached by https`);
}

/**
 * Asks an authorization server for its metadata.
 *
 * @throws Error if there is none, or if it is that of another issuer
 */
export async function discover(issuer: string, signal: AbortSignal): Promise<IssuerMetadata> {
  let failure: unknown;
  for (const url of metadataUrls(issuer)) {
    try {
      requireConfidential(url);
      const metadata = shape.parse(await fetchJson(url, signal));
      if (metadata.issuer !== issuer) throw new Error(`${url} is the metadata of another issuer`);
      requireConfidential(new URL(metadata.jwks_uri));
      return metadata;
    } catch (error) {
      failure = error;
    }
  }
  throw new Error(`no metadata of ${issuer}`, { cause: failure });
}

/** Milliseconds until metadata and keys are there: whoever shows a token waits for them. */
const TIMEOUT_MS = 5000;
/** Milliseconds for which keys are used without asking again. */
const KEYS_AGE_MS = 600_000;
/** Milliseconds between two fetches for the sake of unknown keys, which anyone can make up. */
const COOLDOWN_MS = 5000;
/** Milliseconds for which an issuer that was out of reach is left alone. */
const RETRY_MS = 2000;

const keySet = z.looseObject({ keys: z.array(z.looseObject({ kty: z.string() })) });

/** Milliseconds after which an issuer that was out of reach is asked again, if by nobody before. */
const RECHECK_MS = 30_000;

/** What the last fetch of an issuer's keys came to; `unused` before the first. */
export type IssuerState = "ok" | "unreachable" | "unused";

/** The keys of an issuer, as the library asks for them. */
interface IssuerKeys {
  readonly key: JWTVerifyGetKey;
  readonly state: IssuerState;
  close(): void;
}

/** The keys of an issuer, or newer ones, cannot be fetched now. */
export class IssuerOutOfReach extends Error {
  override readonly name = "IssuerOutOfReach";
  /** Seconds. */
  readonly retryAfter: number;

  constructor(message: string, retryAfterMs: number, cause?: unknown) {
    super(message, { cause });
    this.retryAfter = Math.max(1, Math.ceil(retryAfterMs / 1000));
  }
}

/**
 * The keys of an issuer (RFC 7517), found by its metadata and fetched when they are needed: the
 * first time, when they are old, and for a key that is not known. Keys that are known go on being
 * used while the issuer is out of reach.
 *
 * @returns its `key` throws IssuerOutOfReach, also for an unknown key while nothing may be fetched,
 *   or the library's error if there is no such key
 */
export function createIssuerKeys(issuer: string): IssuerKeys {
  let state: IssuerState = "unused";
  let recheck: NodeJS.Timeout | undefined;
  let retryAt = 0;
  let fetches = 0;
  /** By the clock that the library waits for the cooldown by. */
  let fetchedAt = 0;

  async function fetchKeys(): Promise<Response> {
    if (performance.now() < retryAt) throw new IssuerOutOfReach("it was so a moment ago", RETRY_MS);
    fetches++;
    clearTimeout(recheck);
    try {
      const signal = AbortSignal.timeout(TIMEOUT_MS);
      const { jwks_uri: uri } = await discover(issuer, signal);
      const keys = Response.json(keySet.parse(await fetchJson(new URL(uri), signal)));
      fetchedAt = Date.now();
      state = "ok";
      return keys;
    } catch (cause) {
      retryAt = performance.now() + RETRY_MS;
      state = "unreachable";
      // Without it the state would stay so until somebody brings a token.
      recheck = setTimeout(() => void keys.reload().catch(() => {}), RECHECK_MS).unref();
      const detail = cause instanceof Error ? cause.message : "unknown";
      throw new IssuerOutOfReach(detail, RETRY_MS, cause);
    }
  }

  const keys = createRemoteJWKSet(new URL(issuer), {
    cacheMaxAge: KEYS_AGE_MS,
    cooldownDuration: COOLDOWN_MS,
    [customFetch]: fetchKeys,
  });
  return {
    async key(header, token) {
      const before = fetches;
      try {
        return await keys(header, token);
      } catch (error) {
        // Keys fetched before the token came may lack one that signs since then.
        if (!(error instanceof errors.JWKSNoMatchingKey) || fetches > before) throw error;
        const left = fetchedAt + COOLDOWN_MS - Date.now();
        throw new IssuerOutOfReach("its keys were fetched a moment ago", left, error);
      }
    },
    get state() {
      return state;
    },
    close: () => clearTimeout(recheck),
  };
}
