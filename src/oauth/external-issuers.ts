import { hash } from "node:crypto";
import {
  createRemoteJWKSet,
  customFetch,
  errors,
  type JWTPayload,
  type JWTVerifyGetKey,
  jwtVerify,
} from "jose";
import * as z from "zod";
import { isUsername } from "../access/roles.ts";
import { epochSeconds } from "../clock.ts";
import { isConfidential } from "../config/addresses.ts";
import type { Configuration } from "../config/schema.ts";
import { invalidToken } from "../identity/jwt-verification.ts";
import { tokenIdPattern } from "../identity/revocations.ts";
import type { Log } from "../observe/log.ts";
import { Refusal, type RefusedToken } from "../refusal.ts";
import { readBounded } from "./server/http.ts";

const MAX_DOCUMENT_BYTES = 256 * 1024;

const metadataShape = z.looseObject({ issuer: z.string(), jwks_uri: z.url() });

async function fetchJson(url: URL, signal: AbortSignal): Promise<unknown> {
  const headers = { accept: "application/json" };
  const answer = await fetch(url, { redirect: "error", signal, headers });
  if (!answer.ok || answer.body === null) throw new Error(`${url} returned ${answer.status}`);
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
      const metadata = metadataShape.parse(await fetchJson(url, signal));
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

/** For metadata and keys, for which requests with a token wait. */
const TIMEOUT_MS = 5000;
const KEYS_AGE_MS = 600_000;
/** Between two fetches for unknown keys, since anyone can invent a key id. */
const COOLDOWN_MS = 5000;
/** Between attempts to reach an unreachable issuer. */
const RETRY_MS = 2000;
/** Between attempts that no token has caused. */
const RECHECK_MS = 30_000;

const keySet = z.looseObject({ keys: z.array(z.looseObject({ kty: z.string() })) });

type IssuerState = "ok" | "unreachable" | "unused";

/** The issuer's keys, or newer ones, cannot be fetched now. */
class IssuerUnreachable extends Error {
  readonly retryAfter: number;

  constructor(message: string, retryAfterMs: number, cause?: unknown) {
    super(message, { cause });
    this.retryAfter = Math.max(1, Math.ceil(retryAfterMs / 1000));
  }
}

/**
 * The keys of an issuer (RFC 7517), discovered by its metadata. They are fetched on first use, when
 * they are old, and for an unknown key id. Known keys stay in use while the issuer is unreachable.
 *
 * @returns its `key` throws the library's error if the key does not exist. It throws
 * IssuerUnreachable if that cannot be determined now, also during the cooldown.
 */
function createIssuerKeys(issuer: string) {
  let state: IssuerState = "unused";
  let recheck: NodeJS.Timeout | undefined;
  let retryAt = 0;
  let fetches = 0;
  /** On the clock by which the library measures its cooldown. */
  let fetchedAt = 0;

  async function fetchKeys(): Promise<Response> {
    if (performance.now() < retryAt)
      throw new IssuerUnreachable("the last attempt has just failed", RETRY_MS);
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
      // Without this timer the state would stay `unreachable` until the next token arrives.
      recheck = setTimeout(() => void keys.reload().catch(() => {}), RECHECK_MS).unref();
      const detail = cause instanceof Error ? cause.message : "unknown";
      throw new IssuerUnreachable(detail, RETRY_MS, cause);
    }
  }

  const keys = createRemoteJWKSet(new URL(issuer), {
    cacheMaxAge: KEYS_AGE_MS,
    cooldownDuration: COOLDOWN_MS,
    [customFetch]: fetchKeys,
  });
  const key: JWTVerifyGetKey = async (header, token) => {
    const before = fetches;
    try {
      return await keys(header, token);
    } catch (error) {
      // Cached keys may lack one that the issuer has added since, so the token may be valid.
      if (!(error instanceof errors.JWKSNoMatchingKey) || fetches > before) throw error;
      const left = fetchedAt + COOLDOWN_MS - Date.now();
      throw new IssuerUnreachable("its keys have just been fetched", left, error);
    }
  };
  return { key, state: () => state, close: () => clearTimeout(recheck) };
}

type IssuerSettings = Configuration["mcp"]["authorization_servers"][number];

export type ExternalToken = ReturnType<typeof readToken>;
export type ExternalIssuers = ReturnType<typeof createExternalIssuers>;

/** Asymmetric algorithms only: anyone who knows a shared secret could forge a token. */
const algorithms = [
  ...["ES256", "ES384", "ES512", "EdDSA", "Ed25519"],
  ...["PS256", "PS384", "PS512", "RS256", "RS384", "RS512"],
];
/** Media types of access tokens (RFC 9068), and that of older servers. */
const types = new Set(["at+jwt", "application/at+jwt", "jwt"]);
/** How far `iat` may lie in the future. */
const CLOCK_AHEAD_SECONDS = 60;
/** Clock skew allowed for `nbf` and `exp` (RFC 7519, section 4.1). */
const CLOCK_SKEW_SECONDS = 30;
const MAX_TOKEN_LENGTH = 16_384;
/** The compact form (RFC 7515, section 7.1). Decoders would ignore white space in it. */
const compact = /^[\w-]+\.[\w-]+\.[\w-]+$/;

/** Why the token names no valid user. */
function usernameProblem(payload: JWTPayload, { username_claim: claim }: IssuerSettings) {
  const value = payload[claim];
  if (value === undefined) return "no_username";
  if (claim === "email" && payload.email_verified !== true) return "email_not_verified";
  // An invalid name is refused, never normalized: two names must not become one.
  return isUsername(value) ? undefined : "bad_username";
}

/** The audit fields of a token, valid or not. */
function describe(token: string, payload: JWTPayload, settings: IssuerSettings) {
  const { issuer, prefix, username_claim: claim } = settings;
  const { jti, client_id: client = payload.azp } = payload;
  // Without the signature, which has several encodings.
  const digest = hash("sha256", token.slice(0, token.lastIndexOf(".")));
  return {
    issuer,
    user:
      usernameProblem(payload, settings) === undefined ? `${prefix}:${payload[claim]}` : undefined,
    tokenId: typeof jti === "string" && tokenIdPattern.test(jti) ? jti : digest,
    client: typeof client === "string" ? client : undefined,
  };
}

/** Servers send a string (RFC 9068) or a list, and some name the claim `scp`. */
function readScopes({ scope, scp }: JWTPayload): ReadonlySet<string> {
  const claim = scope === undefined ? scp : scope;
  if (claim === undefined) return new Set();
  const scopes: unknown = typeof claim === "string" ? claim.split(" ") : claim;
  if (!Array.isArray(scopes)) throw invalidToken("bad_scope");
  return new Set(scopes.filter((one) => typeof one === "string" && one !== ""));
}

function readToken(token: string, payload: JWTPayload, settings: IssuerSettings) {
  const { exp, iat, cnf } = payload;
  // A bearer request cannot prove possession of the key (RFC 9449, RFC 8705).
  if (cnf !== undefined) throw invalidToken("bound_to_key");
  if (exp === undefined) throw invalidToken("no_expiry");
  // Without an issue time, or with one in the future, the token would survive every revocation.
  if (iat === undefined) throw invalidToken("no_issue_time");
  if (iat > epochSeconds() + CLOCK_AHEAD_SECONDS) throw invalidToken("issued_in_future");
  const { user, ...rest } = describe(token, payload, settings);
  if (user === undefined) throw invalidToken(usernameProblem(payload, settings) ?? "bad_username");
  return {
    ...rest,
    user,
    scopes: readScopes(payload),
    issuedAt: iat,
    /** Epoch seconds, with the allowed clock skew. */
    expiresAt: exp + CLOCK_SKEW_SECONDS,
  };
}

const libraryDetails: Readonly<Record<string, string>> = {
  aud: "wrong_audience",
  nbf: "not_yet_valid",
  [errors.JWKSNoMatchingKey.code]: "unknown_key",
  [errors.JWSSignatureVerificationFailed.code]: "bad_signature",
  [errors.JOSEAlgNotAllowed.code]: "wrong_algorithm",
};

/** The reason as listed in docs/mcp.md. */
function detailOf(error: unknown): string {
  if (error instanceof Refusal) return error.detail ?? "malformed";
  if (error instanceof errors.JWTExpired) return "expired";
  if (error instanceof errors.JWTClaimValidationFailed) {
    return libraryDetails[error.claim] ?? "bad_claim";
  }
  // Any other error that a crafted token causes in the parser means an invalid token.
  return (error instanceof errors.JOSEError && libraryDetails[error.code]) || "malformed";
}

/** @param resource the required audience (RFC 8707), unless the issuer has its own */
export function createExternalIssuers(
  settings: readonly IssuerSettings[],
  resource: () => string,
  log: Log,
) {
  const issuers = new Map(
    settings.map((one) => [one.issuer, { settings: one, keys: createIssuerKeys(one.issuer) }]),
  );
  return {
    knows: (issuer: string): boolean => issuers.has(issuer),
    /** By issuer prefix. */
    get states(): Readonly<Record<string, IssuerState>> {
      const all = issuers.values().map(({ settings, keys }) => [settings.prefix, keys.state()]);
      return Object.fromEntries(all);
    },
    close(): void {
      for (const { keys } of issuers.values()) keys.close();
    },
    /** @throws Refusal `token_invalid`, `token_expired` or `issuer_unreachable`, with its token */
    async verify(issuer: string, token: string): Promise<ExternalToken> {
      const found = issuers.get(issuer);
      if (found === undefined) throw invalidToken("unknown_issuer");
      const { settings, keys } = found;
      let about: RefusedToken = { issuer };
      try {
        if (token.length > MAX_TOKEN_LENGTH) throw invalidToken("too_long");
        if (!compact.test(token)) throw invalidToken("malformed");
        const { payload, protectedHeader } = await jwtVerify(token, keys.key, {
          algorithms,
          issuer,
          audience: settings.audience ?? resource(),
          clockTolerance: CLOCK_SKEW_SECONDS,
        });
        about = describe(token, payload, settings);
        const { typ } = protectedHeader;
        if (typ !== undefined && !types.has(typ.toLowerCase())) throw invalidToken("wrong_type");
        return readToken(token, payload, settings);
      } catch (cause) {
        const isClaim =
          cause instanceof errors.JWTExpired || cause instanceof errors.JWTClaimValidationFailed;
        // The library checks claims after the signature, so the payload is authentic.
        if (isClaim) about = describe(token, cause.payload, settings);
        if (cause instanceof IssuerUnreachable) {
          const { message, retryAfter } = cause;
          const isKeyUnknown = cause.cause instanceof errors.JWKSNoMatchingKey;
          if (!isKeyUnknown) {
            log.warn({ issuer, detail: message }, "an authorization server is unreachable");
          }
          const detail = isKeyUnknown ? "unknown_key" : "unreachable";
          throw new Refusal("issuer_unreachable", { detail, cause, retryAfter, token: about });
        }
        const code = cause instanceof errors.JWTExpired ? "token_expired" : "token_invalid";
        throw new Refusal(code, { detail: detailOf(cause), cause, token: about });
      }
    },
  };
}
