import { errors, type JWTPayload, jwtVerify } from "jose";
import { isUsername } from "../access/identifiers.ts";
import { epochSeconds } from "../clock.ts";
import type { Configuration } from "../config/schema.ts";
import { invalidToken } from "../identity/jwt-verification.ts";
import type { Log } from "../observe/log.ts";
import { Refusal } from "../refusal.ts";
import { createIssuerKeys, IssuerOutOfReach, RETRY_SECONDS } from "./issuer-keys.ts";

/** An authorization server whose tokens are accepted. */
type IssuerSettings = Configuration["mcp"]["authorization_servers"][number];

/** What an external token says, held to be true. */
export interface ExternalToken {
  /** `prefix:username`. */
  readonly username: string;
  readonly scopes: ReadonlySet<string>;
  readonly tokenId: string;
  /** The OAuth client that it was issued to, if it says so. */
  readonly clientId: string | undefined;
  /** Epoch seconds. */
  readonly issuedAt: number;
  /** The same, with what the clocks may differ. */
  readonly expiresAt: number;
}

/** Verifies the tokens of external authorization servers. */
export interface ExternalIssuers {
  /** True for the issuer of one of them. */
  knows(issuer: string): boolean;
  /** @throws Refusal `token_invalid`, `token_expired` or `issuer_unreachable` */
  verify(issuer: string, token: string): Promise<ExternalToken>;
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

function readUsername(
  payload: JWTPayload,
  { prefix, username_claim: claim }: IssuerSettings,
): string {
  const value = payload[claim];
  if (claim === "email" && payload.email_verified !== true)
    throw invalidToken("email is not verified");
  // A name that does not fit is refused, never cleaned: two names must not become one.
  if (!isUsername(value)) throw invalidToken(`claim ${claim}`);
  return `${prefix}:${value}`;
}

/** Servers write a text (RFC 9068) or a list, and some name the claim `scp`. */
function readScopes({ scope, scp }: JWTPayload): ReadonlySet<string> {
  const claim = scope === undefined ? scp : scope;
  if (claim === undefined) return new Set();
  const scopes: unknown = typeof claim === "string" ? claim.split(" ") : claim;
  if (!Array.isArray(scopes)) throw invalidToken("claim scope or scp");
  return new Set(scopes.filter((one) => typeof one === "string" && one !== ""));
}

function readToken(payload: JWTPayload, settings: IssuerSettings): ExternalToken {
  const { exp, iat, jti, cnf, client_id: clientId = payload.azp } = payload;
  // It is good with a proof of its key alone (RFC 9449, RFC 8705), which no bearer gives.
  if (cnf !== undefined) throw invalidToken("claim cnf");
  if (exp === undefined) throw invalidToken("claim exp");
  // Without a time of issue, or with one that is yet to come, it would outlive every revocation.
  if (iat === undefined || iat > epochSeconds() + CLOCK_AHEAD_SECONDS)
    throw invalidToken("claim iat");
  return {
    username: readUsername(payload, settings),
    scopes: readScopes(payload),
    tokenId: typeof jti === "string" ? jti : "",
    clientId: typeof clientId === "string" ? clientId : undefined,
    issuedAt: iat,
    expiresAt: exp + CLOCK_SKEW_SECONDS,
  };
}

function asRefusal(error: unknown): Refusal {
  if (error instanceof Refusal) return error;
  if (error instanceof IssuerOutOfReach) {
    const { message: detail } = error;
    return new Refusal("issuer_unreachable", { detail, cause: error, retryAfter: RETRY_SECONDS });
  }
  if (error instanceof errors.JWTExpired) return new Refusal("token_expired", { cause: error });
  if (error instanceof errors.JOSEError) return invalidToken(error.code, error);
  // Whatever else a crafted token makes the parser throw, it is no valid token.
  return invalidToken("unreadable", error);
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
    async verify(issuer, token) {
      const found = issuers.get(issuer);
      if (found === undefined || token.length > MAX_TOKEN_LENGTH)
        throw invalidToken("issuer or length");
      if (!compact.test(token)) throw invalidToken("spelling");
      try {
        const { payload, protectedHeader } = await jwtVerify(token, found.keys, {
          algorithms,
          issuer,
          audience: found.settings.audience ?? resource(),
          clockTolerance: CLOCK_SKEW_SECONDS,
        });
        const { typ } = protectedHeader;
        if (typ !== undefined && !types.has(typ.toLowerCase())) throw invalidToken("typ");
        return readToken(payload, found.settings);
      } catch (error) {
        const refusal = asRefusal(error);
        if (refusal.code === "issuer_unreachable") {
          log.warn({ issuer, detail: refusal.detail }, "an authorization server is out of reach");
        }
        throw refusal;
      }
    },
  };
}
