import { createHash } from "node:crypto";
import { errors, type JWTPayload, jwtVerify } from "jose";
import { isUsername } from "../access/identifiers.ts";
import { epochSeconds } from "../clock.ts";
import type { Configuration } from "../config/schema.ts";
import { invalidToken } from "../identity/jwt-verification.ts";
import { tokenIdPattern } from "../identity/revocations.ts";
import type { Log } from "../observe/log.ts";
import { Refusal, type RefusedToken } from "../refusal.ts";
import { createIssuerKeys, IssuerOutOfReach, type IssuerState } from "./issuer-keys.ts";

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
