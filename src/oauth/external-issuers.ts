import { createHash } from "node:crypto";
import {
  createRemoteJWKSet,
  customFetch,
  errors,
  type JWTPayload,
  type JWTVerifyGetKey,
  jwtVerify,
} from "jose";
import * as z from "zod";
import { isUsername } from "../access/identifiers.ts";
import { epochSeconds } from "../clock.ts";
import { isConfidential } from "../config/addresses.ts";
import type { Configuration } from "../config/schema.ts";
import { invalidToken } from "../identity/jwt-verification.ts";
import { tokenIdPattern } from "../identity/revocations.ts";
import type { Log } from "../observe/log.ts";
import { Refusal, type RefusedToken } from "../refusal.ts";

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
async function discover(issuer: string, signal: AbortSignal): Promise<IssuerMetadata> {
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
type IssuerState = "ok" | "unreachable" | "unused";

/** The keys of an issuer, as the library asks for them. */
interface IssuerKeys {
  readonly key: JWTVerifyGetKey;
  readonly state: IssuerState;
  close(): void;
}

/** The keys of an issuer, or newer ones, cannot be fetched now. */
class IssuerOutOfReach extends Error {
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
function createIssuerKeys(issuer: string): IssuerKeys {
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

/** An authorization server whose tokens are accepted. */
type IssuerSettings = Configuration["mcp"]["authorization_servers"][number];

/** What an external token says, held to be true. */
export interface ExternalToken extends RefusedToken {
  readonly issuer: string;
  /** `prefix:username`. */
  readonly user: string;
  readonly tokenId: string;
  readonly scopes: ReadonlySet<string>;
  /** Epoch seconds. */
  readonly issuedAt: number;
  /** The same, with what the clocks may differ. */
  readonly expiresAt: number;
}

/** Verifies the tokens of external authorization servers. */
export interface ExternalIssuers {
  /** True for the issuer of one of them. */
  knows(issuer: string): boolean;
  /** @throws Refusal `token_invalid`, `token_expired` or `issuer_unreachable`, with its token */
  verify(issuer: string, token: string): Promise<ExternalToken>;
  /** By the issuers' prefixes. */
  readonly states: Readonly<Record<string, IssuerState>>;
  close(): void;
}

/** Signatures that only the issuer can make; a shared secret would be anybody's guess. */
const algorithms = [
  ...["ES256", "ES384", "ES512", "EdDSA", "Ed25519"],
  ...["PS256", "PS384", "PS512", "RS256", "RS384", "RS512"],
];
/** Media types of an access token (RFC 9068), and what older servers write. */
const types = new Set(["at+jwt", "application/at+jwt", "jwt"]);
/** By how much the issuer's clock may be ahead. */
const CLOCK_AHEAD_SECONDS = 60;
/** By how much the clocks may differ where a token begins and ends (RFC 7519, section 4.1). */
const CLOCK_SKEW_SECONDS = 30;
const MAX_TOKEN_LENGTH = 16_384;
/** The compact form (RFC 7515, section 7.1): whoever decodes it passes over white space in it. */
const compact = /^[\w-]+\.[\w-]+\.[\w-]+$/;

/** Why a token names no user; undefined if it does. */
function whyNobody(payload: JWTPayload, { username_claim: claim }: IssuerSettings) {
  const value = payload[claim];
  if (value === undefined) return "no_username";
  if (claim === "email" && payload.email_verified !== true) return "email_not_verified";
  // A name that does not fit is refused, never cleaned: two names must not become one.
  return isUsername(value) ? undefined : "bad_username";
}

/** What its issuer has signed about whose token it is, be the token good or not. */
function describe(token: string, payload: JWTPayload, settings: IssuerSettings) {
  const { issuer, prefix, username_claim: claim } = settings;
  const { jti, client_id: client = payload.azp } = payload;
  return {
    issuer,
    user: whyNobody(payload, settings) === undefined ? `${prefix}:${payload[claim]}` : undefined,
    tokenId: typeof jti === "string" && tokenIdPattern.test(jti) ? jti : digestOf(token),
    client: typeof client === "string" ? client : undefined,
  };
}

/** Names a token without a `jti`, by what is signed: signatures can be written in several ways. */
function digestOf(token: string): string {
  const signed = token.slice(0, token.lastIndexOf("."));
  return createHash("sha256").update(signed).digest("base64url");
}

/** Servers write a text (RFC 9068) or a list, and some name the claim `scp`. */
function readScopes({ scope, scp }: JWTPayload): ReadonlySet<string> {
  const claim = scope === undefined ? scp : scope;
  if (claim === undefined) return new Set();
  const scopes: unknown = typeof claim === "string" ? claim.split(" ") : claim;
  if (!Array.isArray(scopes)) throw invalidToken("bad_scope");
  return new Set(scopes.filter((one) => typeof one === "string" && one !== ""));
}

function readToken(token: string, payload: JWTPayload, settings: IssuerSettings): ExternalToken {
  const { exp, iat, cnf } = payload;
  // It is good with a proof of its key alone (RFC 9449, RFC 8705), which no bearer gives.
  if (cnf !== undefined) throw invalidToken("bound_to_key");
  if (exp === undefined) throw invalidToken("no_expiry");
  // Without a time of issue, or with one that is yet to come, it would outlive every revocation.
  if (iat === undefined) throw invalidToken("no_issue_time");
  if (iat > epochSeconds() + CLOCK_AHEAD_SECONDS) throw invalidToken("issued_in_future");
  const { user, ...rest } = describe(token, payload, settings);
  if (user === undefined) throw invalidToken(whyNobody(payload, settings) ?? "bad_username");
  return {
    ...rest,
    user,
    scopes: readScopes(payload),
    issuedAt: iat,
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

/** Why a token was refused, in the words of docs/mcp.md. */
function detailOf(error: unknown): string {
  if (error instanceof Refusal) return error.detail ?? "malformed";
  if (error instanceof errors.JWTExpired) return "expired";
  if (error instanceof errors.JWTClaimValidationFailed) {
    return libraryDetails[error.claim] ?? "bad_claim";
  }
  // Whatever else a crafted token makes the parser throw, it is no valid token.
  return (error instanceof errors.JOSEError && libraryDetails[error.code]) || "malformed";
}

/**
 * Makes a verifier for the configured issuers.
 *
 * @param resource the audience that a token must be for (RFC 8707), if its issuer has no other
 */
export function createExternalIssuers(
  settings: readonly IssuerSettings[],
  resource: () => string,
  log: Log,
): ExternalIssuers {
  const issuers = new Map(
    settings.map((issuer) => [
      issuer.issuer,
      { settings: issuer, keys: createIssuerKeys(issuer.issuer) },
    ]),
  );
  return {
    knows: (issuer) => issuers.has(issuer),
    get states() {
      const all = issuers.values().map(({ settings, keys }) => [settings.prefix, keys.state]);
      return Object.fromEntries(all);
    },
    close() {
      for (const { keys } of issuers.values()) keys.close();
    },
    async verify(issuer, token) {
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
        // The library looks at claims after the signature.
        if (isClaim) about = describe(token, cause.payload, settings);
        if (cause instanceof IssuerOutOfReach) {
          const { message, retryAfter } = cause;
          const isKeyUnknown = cause.cause instanceof errors.JWKSNoMatchingKey;
          if (!isKeyUnknown) {
            log.warn({ issuer, detail: message }, "an authorization server is out of reach");
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
