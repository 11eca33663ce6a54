import {
  type CryptoKey,
  calculateJwkThumbprint,
  createRemoteJWKSet,
  customFetch,
  errors,
  exportJWK,
  type FlattenedJWSInput,
  type JWSHeaderParameters,
} from "jose";
import * as z from "zod";
import { errorMessage } from "../../core/base/client-error.ts";
import { readGuarded } from "../../core/base/files/guarded.ts";
import { watchFile } from "../../core/base/files/watch.ts";
import { readBounded } from "../../core/base/read-stream.ts";
import { isConfidential } from "../../core/config/addresses.ts";
import type { IssuerSettings } from "../../core/config/schema.ts";
import { isObject, parseUnrounded } from "../../core/json/exact.ts";

export const MAX_DOCUMENT_BYTES = 256 * 1024;
/** For metadata, keys and introspection, for which requests with a token wait. */
export const ISSUER_TIMEOUT_MS = 5000;

/** A response with another status than 2xx. */
class UnexpectedStatus extends Error {
  readonly status: number;

  constructor(url: URL, { status, headers }: Response) {
    const location = headers.get("location");
    const redirect = `${url} redirects to ${quote(location)}, which the gateway does not follow`;
    super(location === null ? `${url} answered ${status}` : redirect);
    this.status = status;
  }
}

/** Text of a provider for a message. */
function quote(found: unknown): string {
  return JSON.stringify(found)?.slice(0, 200) ?? "nothing";
}

/** Why nothing arrived. The errors of `fetch` have the reason as their cause. */
export function fetchFailure(error: unknown): string {
  if (error instanceof AggregateError) return fetchFailure(error.errors[0]);
  return error instanceof Error && error.cause !== undefined
    ? fetchFailure(error.cause)
    : errorMessage(error);
}

/** Providers write null for a member that is absent. */
function withoutNulls(value: unknown): unknown {
  if (Array.isArray(value)) return value.map(withoutNulls);
  if (!isObject(value)) return value;
  const members = Object.entries(value).filter(([, member]) => member !== null);
  return Object.fromEntries(members.map(([name, member]) => [name, withoutNulls(member)]));
}

function parseDocument(text: string, place: URL | string): unknown {
  if (text.startsWith("\u{feff}")) {
    throw new Error(`${place} begins with a byte-order mark, which JSON does not allow`);
  }
  try {
    return withoutNulls(parseUnrounded(text, Number));
  } catch {
    throw new Error(`${place} is not JSON`);
  }
}

/** @throws Error that says why, unless the response is a 2xx with JSON of at most 256 KiB */
export async function fetchJson(url: URL, options: RequestInit): Promise<unknown> {
  const headers = { accept: "application/json", ...options.headers };
  let text: string;
  try {
    const answer = await fetch(url, { ...options, redirect: "manual", headers });
    if (!answer.ok || answer.body === null) {
      await answer.body?.cancel();
      throw new UnexpectedStatus(url, answer);
    }
    text = (await readBounded(answer.body, MAX_DOCUMENT_BYTES)).toString();
  } catch (cause) {
    if (cause instanceof UnexpectedStatus) throw cause;
    throw new Error(`${url} cannot be read: ${fetchFailure(cause)}`, { cause });
  }
  return parseDocument(text, url);
}

const jsonObject = z.record(z.string(), z.unknown());

/** Keys that come over plain HTTP could be forged, unless they come from this machine. */
function isKeyAddress(text: unknown): text is string {
  return typeof text === "string" && URL.canParse(text) && isConfidential(new URL(text));
}

/** @throws Error that says what the document has instead of what is expected */
export async function fetchMetadata(url: URL, issuer: string, signal: AbortSignal) {
  if (!isConfidential(url)) throw new Error(`${url} does not use https`);
  const { data, success } = jsonObject.safeParse(await fetchJson(url, { signal }));
  if (!success) throw new Error(`${url} is not a JSON object`);
  const { issuer: found, jwks_uri } = data;
  if (found !== issuer) {
    throw new Error(`${url} has issuer ${quote(found)}, expected ${quote(issuer)}`);
  }
  if (isKeyAddress(jwks_uri)) return { ...data, jwks_uri };
  throw new Error(`${url} has jwks_uri ${quote(jwks_uri)}, expected an https URL`);
}

/** Fetches an issuer's metadata (RFC 8414, section 3.1, and OpenID Connect Discovery). */
async function discover(issuer: string, signal: AbortSignal) {
  const { origin, pathname } = new URL(issuer);
  const path = pathname.replace(/\/$/, "");
  let failure: unknown;
  let lowest = Number.POSITIVE_INFINITY;
  for (const url of [
    new URL(`${origin}${path}/.well-known/openid-configuration`),
    new URL(`${origin}/.well-known/oauth-authorization-server${path}`),
    new URL(`${origin}/.well-known/openid-configuration${path}`),
  ]) {
    try {
      return await fetchMetadata(url, issuer, signal);
    } catch (error) {
      // A document that is there says more than a redirect, and that more than 404.
      const status = error instanceof UnexpectedStatus ? error.status : 0;
      const rank = status === 404 ? 1000 : status;
      if (rank < lowest) [failure, lowest] = [error, rank];
    }
  }
  throw failure;
}

const KEYS_AGE_MS = 600_000;
/** Between two fetches for unknown keys, since anyone can invent a key id. */
const COOLDOWN_MS = 5000;
/** Between attempts to reach an unreachable issuer. */
export const RETRY_MS = 2000;
/** Between attempts that no token has caused. */
const RECHECK_MS = 30_000;

const keySet = z.looseObject({ keys: z.array(z.unknown()) });
const keyShape = z.looseObject({ kty: z.string() });
const MIN_RSA_BITS = 2048;

export type IssuerState = "ok" | "unreachable" | "unused";

/** The issuer, its keys, or newer ones, cannot be reached now. */
export class IssuerUnreachable extends Error {
  readonly retryAfter: number;
  readonly detail: string;

  constructor(message: string, retryAfterMs: number, cause?: unknown, detail = "unreachable") {
    super(message, { cause });
    this.detail = detail;
    this.retryAfter = Math.max(1, Math.ceil(retryAfterMs / 1000));
  }
}

/** The key that a token names cannot verify it. */
export class UnusableKey extends Error {}

/** The one key that several entries of a key set contain. Undefined if they contain several. */
async function soleKey(entries: AsyncIterable<CryptoKey>): Promise<CryptoKey | undefined> {
  const found = new Map<string, CryptoKey>();
  for await (const key of entries) {
    found.set(await calculateJwkThumbprint(await exportJWK(key)), key);
    if (found.size > 1) return undefined;
  }
  const [key] = found.values();
  if (key === undefined) throw new Error("none of its entries can be imported");
  return key;
}

/**
 * The keys of an issuer (RFC 7517): in `jwks_file`, at `jwks_url`, or where its metadata says. They
 * are read on first use, for an unknown key id, and when they are old or the file has changed. Known
 * keys stay in use while the issuer is unreachable or the file is not a key set.
 */
export function createIssuerKeys(settings: IssuerSettings) {
  const { issuer, jwks_url: address, jwks_file: file } = settings;
  /** Where the keys were found. */
  let place = file ?? "";
  let state: IssuerState = "unused";
  let recheck: NodeJS.Timeout | undefined;
  let retryAt = 0;
  let failure: unknown;
  /** Completed ones, since a token may wait for a read that another one has started. */
  let reads = 0;
  /** On the clock by which the library measures its cooldown. */
  let readAt = 0;
  let content = "";
  let generation: object | undefined;

  async function fetchKeys(): Promise<unknown> {
    if (performance.now() < retryAt) throw failure;
    try {
      const signal = AbortSignal.timeout(ISSUER_TIMEOUT_MS);
      place = address ?? (await discover(issuer, signal)).jwks_uri;
      return await fetchJson(new URL(place), { signal });
    } catch (error) {
      retryAt = performance.now() + RETRY_MS;
      failure = error;
      throw error;
    }
  }

  async function readFile(name: string): Promise<unknown> {
    const text = await readGuarded(name, { checkRead: false });
    if (text.length > MAX_DOCUMENT_BYTES) throw new Error(`${name} is too large`);
    return parseDocument(text, name);
  }

  async function read(): Promise<Response> {
    clearTimeout(recheck);
    try {
      const document = await (file === undefined ? fetchKeys() : readFile(file));
      const { data } = keySet.safeParse(document);
      if (data === undefined) throw new Error(`${place} is not a key set: it has no list keys`);
      // Entries that are no keys do not make the others useless (RFC 7517, section 5).
      const read = { keys: data.keys.filter((one) => keyShape.safeParse(one).success) };
      if (read.keys.length === 0 && data.keys.length > 0) throw new Error(`${place} has no key`);
      reads++;
      readAt = Date.now();
      state = "ok";
      const text = JSON.stringify(read);
      if (text !== content) generation = {};
      content = text;
      return Response.json(read);
    } catch (cause) {
      state = "unreachable";
      // Without this timer the state would stay `unreachable` until the next token arrives.
      recheck = setTimeout(reload, RECHECK_MS).unref();
      throw new IssuerUnreachable(errorMessage(cause), RETRY_MS, cause);
    }
  }

  const keys = createRemoteJWKSet(new URL(issuer), {
    cacheMaxAge: file === undefined ? KEYS_AGE_MS : Number.POSITIVE_INFINITY,
    cooldownDuration: file === undefined ? COOLDOWN_MS : 0,
    [customFetch]: read,
  });
  const reload = () => void keys.reload().catch(() => {});
  const watch = file === undefined ? undefined : watchFile(file, reload);
  return {
    /**
     * Throws the library's error if the key does not exist, UnusableKey if it cannot verify, and
     * IssuerUnreachable if that cannot be determined now, also during the cooldown.
     */
    async key(header: JWSHeaderParameters | undefined, token: FlattenedJWSInput) {
      const before = reads;
      const unusable = (reason: string, cause?: unknown) => {
        const name = header?.kid === undefined ? "A key" : `The key ${quote(header.kid)}`;
        return new UnusableKey(`${name} of ${place} cannot be used: ${reason}`, { cause });
      };
      try {
        // By a clock that was set back, the library's cooldown would last.
        if (readAt > Date.now()) await keys.reload().catch(() => {});
        const key = await keys(header, token).catch(async (error: unknown) => {
          if (!(error instanceof errors.JWKSMultipleMatchingKeys)) throw error;
          const sole = await soleKey(error);
          if (sole === undefined) throw error;
          return sole;
        });
        const { algorithm } = key;
        const bits = "modulusLength" in algorithm ? Number(algorithm.modulusLength) : MIN_RSA_BITS;
        if (bits >= MIN_RSA_BITS) return key;
        throw unusable(`found RSA of ${bits} bits, expected at least ${MIN_RSA_BITS}`);
      } catch (error) {
        const isKnown = [IssuerUnreachable, UnusableKey, errors.JWKSMultipleMatchingKeys];
        if (isKnown.some((kind) => error instanceof kind)) throw error;
        if (!(error instanceof errors.JWKSNoMatchingKey))
          throw unusable(errorMessage(error), error);
        // Cached keys may lack one that the issuer has added since, so the token may be valid.
        if (reads > before) throw error;
        const left = readAt + COOLDOWN_MS - Date.now();
        throw new IssuerUnreachable("its keys have just been fetched", left, error, "unknown_key");
      }
    },
    /** Tries again with newer keys after a wrong signature: one may have been replaced under its id. */
    verify<Result>(attempt: () => Promise<Result>): Promise<Result> {
      const before = generation;
      return attempt().catch(async (error: unknown) => {
        if (!(error instanceof errors.JWSSignatureVerificationFailed)) throw error;
        if (Date.now() >= readAt + COOLDOWN_MS) await keys.reload().catch(() => {});
        if (generation === before) throw error;
        return attempt();
      });
    },
    /** Changes whenever the keys do. Undefined before they are known, and once they are old. */
    generation: () => (keys.fresh ? generation : undefined),
    state: () => state,
    close(): void {
      clearTimeout(recheck);
      void watch?.close();
    },
  };
}
