import { createRemoteJWKSet, customFetch, errors, type JWTVerifyGetKey } from "jose";
import * as z from "zod";
import { messageOf } from "../client-error.ts";
import { isConfidential } from "../config/addresses.ts";
import type { IssuerSettings } from "../config/schema.ts";
import { readGuarded } from "../files/guarded.ts";
import { watchFile } from "../files/watch.ts";
import { readBounded } from "../read-stream.ts";

export const MAX_DOCUMENT_BYTES = 256 * 1024;
/** For metadata, keys and introspection, for which requests with a token wait. */
export const ISSUER_TIMEOUT_MS = 5000;

const metadataShape = z.looseObject({ issuer: z.string(), jwks_uri: z.url() });

/** @throws Error unless the response is a 2xx with JSON of at most 256 KiB */
export async function fetchJson(url: URL, options: RequestInit): Promise<unknown> {
  const headers = { accept: "application/json", ...options.headers };
  const answer = await fetch(url, { ...options, redirect: "error", headers });
  if (!answer.ok || answer.body === null) {
    await answer.body?.cancel();
    throw new Error(`${url} returned ${answer.status}`);
  }
  return JSON.parse((await readBounded(answer.body, MAX_DOCUMENT_BYTES)).toString());
}

/** Keys that come over plain HTTP could be forged, unless they come from this machine. */
function requireConfidential(url: URL): void {
  if (!isConfidential(url)) throw new Error(`${url.origin} does not use https`);
}

/** Fetches an issuer's metadata (RFC 8414, section 3.1, and OpenID Connect Discovery). */
async function discover(issuer: string, signal: AbortSignal) {
  const { origin, pathname } = new URL(issuer);
  const path = pathname.replace(/\/$/, "");
  let failure: unknown;
  for (const url of [
    new URL(`${origin}/.well-known/oauth-authorization-server${path}`),
    new URL(`${origin}/.well-known/openid-configuration${path}`),
    new URL(`${origin}${path}/.well-known/openid-configuration`),
  ]) {
    try {
      requireConfidential(url);
      const metadata = metadataShape.parse(await fetchJson(url, { signal }));
      if (metadata.issuer !== issuer)
        throw new Error(`the metadata at ${url} belongs to another issuer`);
      requireConfidential(new URL(metadata.jwks_uri));
      return metadata;
    } catch (error) {
      failure = error;
    }
  }
  throw new Error(`no metadata of ${issuer}`, { cause: failure });
}

const KEYS_AGE_MS = 600_000;
/** Between two fetches for unknown keys, since anyone can invent a key id. */
const COOLDOWN_MS = 5000;
/** Between attempts to reach an unreachable issuer. */
export const RETRY_MS = 2000;
/** Between attempts that no token has caused. */
const RECHECK_MS = 30_000;

const keySet = z.looseObject({ keys: z.array(z.looseObject({ kty: z.string() })) });

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

/**
 * The keys of an issuer (RFC 7517): in `jwks_file`, at `jwks_url`, or where its metadata says. They
 * are read on first use, for an unknown key id, and when they are old or the file has changed. Known
 * keys stay in use while the issuer is unreachable or the file is not a key set.
 */
export function createIssuerKeys(settings: IssuerSettings) {
  const { issuer, jwks_url: address, jwks_file: file } = settings;
  let state: IssuerState = "unused";
  let recheck: NodeJS.Timeout | undefined;
  let retryAt = 0;
  /** Completed ones, since a token may wait for a read that another one has started. */
  let reads = 0;
  /** On the clock by which the library measures its cooldown. */
  let readAt = 0;
  let content = "";
  let generation: object | undefined;

  async function fetchKeys(): Promise<unknown> {
    if (performance.now() < retryAt) throw new Error("the last attempt has just failed");
    try {
      const signal = AbortSignal.timeout(ISSUER_TIMEOUT_MS);
      const uri = address ?? (await discover(issuer, signal)).jwks_uri;
      return await fetchJson(new URL(uri), { signal });
    } catch (error) {
      retryAt = performance.now() + RETRY_MS;
      throw error;
    }
  }

  async function readFile(name: string): Promise<unknown> {
    const text = await readGuarded(name, { checkRead: false });
    if (text.length > MAX_DOCUMENT_BYTES) throw new Error(`${name} is too large`);
    return JSON.parse(text);
  }

  async function read(): Promise<Response> {
    clearTimeout(recheck);
    try {
      const read = keySet.parse(await (file === undefined ? fetchKeys() : readFile(file)));
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
      throw new IssuerUnreachable(messageOf(cause), RETRY_MS, cause);
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
     * Throws the library's error if the key does not exist, and IssuerUnreachable if that cannot be
     * determined now, also during the cooldown.
     */
    async key(...[header, token]: Parameters<JWTVerifyGetKey>) {
      const before = reads;
      try {
        return await keys(header, token);
      } catch (error) {
        // Cached keys may lack one that the issuer has added since, so the token may be valid.
        if (!(error instanceof errors.JWKSNoMatchingKey) || reads > before) throw error;
        const left = readAt + COOLDOWN_MS - Date.now();
        throw new IssuerUnreachable("its keys have just been fetched", left, error, "unknown_key");
      }
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
