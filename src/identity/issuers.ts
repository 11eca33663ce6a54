import { errors, type JWTPayload, jwtVerify } from "jose";
import { LRUCache } from "lru-cache";
import { epochSeconds } from "../clock.ts";
import type { Door, IssuerSettings } from "../config/schema.ts";
import type { Log } from "../observe/log.ts";
import { Refusal, type RefusedToken } from "../refusal.ts";
import { claimedIssuer } from "./authenticate.ts";
import {
  CLOCK_SKEW_SECONDS,
  describeToken,
  type ExternalToken,
  isOtherKind,
  type Logout,
  readExternalToken,
  readLogout,
} from "./external-token.ts";
import { createIntrospection } from "./introspection.ts";
import { createIssuerKeys, type IssuerState, IssuerUnreachable } from "./issuer-keys.ts";
import { invalidToken } from "./jwt-verification.ts";

/** Asymmetric algorithms only: anyone who knows a shared secret could forge a token. */
const algorithms = [
  ...["ES256", "ES384", "ES512", "EdDSA", "Ed25519"],
  ...["PS256", "PS384", "PS512", "RS256", "RS384", "RS512"],
];
/** Media types of access tokens (RFC 9068), those of older servers, and of SPIFFE (JWT-SVID). */
const types = new Set(["at+jwt", "application/at+jwt", "jwt", "jose"]);
/** OpenID Connect Back-Channel Logout, section 2.4. */
const logoutTypes = new Set(["logout+jwt", "application/logout+jwt", "jwt"]);
/** An assertion for an authorization server (draft-ietf-oauth-identity-assertion-authz-grant). */
const ASSERTION_TYPE = "oauth-id-jag+jwt";
const ASSERTION_CLAIMS = ["sub", "jti", "client_id", "exp", "iat"];
/** In seconds, whatever its expiry. */
export const ASSERTION_AGE = 300;
const MAX_TOKEN_LENGTH = 16_384;
/** The compact form (RFC 7515, section 7.1). Decoders would ignore white space in it. */
const compact = /^[\w-]+\.[\w-]+\.[\w-]+$/;
/** In characters, over all verified tokens. The content of each counts as `CONTENT_LENGTH` more. */
const MAX_CACHED_LENGTH = 64 * 1024 * 1024;
const CONTENT_LENGTH = 500;

const libraryDetails: Readonly<Record<string, string>> = {
  aud: "wrong_audience",
  nbf: "not_yet_valid",
  typ: "wrong_type",
  [errors.JWKSNoMatchingKey.code]: "unknown_key",
  [errors.JWKSMultipleMatchingKeys.code]: "unknown_key",
  [errors.JWSSignatureVerificationFailed.code]: "bad_signature",
  [errors.JOSEAlgNotAllowed.code]: "wrong_algorithm",
};

/** The reason as listed in docs/mcp.md. */
function detailOf(error: unknown): string {
  if (error instanceof Refusal) return error.detail ?? "malformed";
  if (error instanceof errors.JWTExpired) return error.claim === "iat" ? "too_old" : "expired";
  if (error instanceof errors.JWTClaimValidationFailed) {
    return libraryDetails[error.claim] ?? "bad_claim";
  }
  // Any other error that a crafted token causes in the parser means an invalid token.
  return (error instanceof errors.JOSEError && libraryDetails[error.code]) || "malformed";
}

/** Checks the claims of an introspected token as the library does those of a JWT. */
function requireIntrospected(
  { iss, aud, exp, nbf }: JWTPayload,
  { issuer }: IssuerSettings,
  audience: string | readonly string[],
): void {
  if (iss !== undefined && iss !== issuer) throw invalidToken("bad_claim");
  const allowed = [audience].flat();
  if (![aud].flat().some((one) => one !== undefined && allowed.includes(one))) {
    throw invalidToken("wrong_audience");
  }
  const now = epochSeconds();
  if (nbf !== undefined && nbf > now + CLOCK_SKEW_SECONDS) throw invalidToken("not_yet_valid");
  if (exp !== undefined && exp <= now - CLOCK_SKEW_SECONDS) {
    throw new Refusal("token_expired", { detail: "expired" });
  }
}

/** A verified assertion about a user (ID-JAG). */
export interface Assertion {
  readonly settings: IssuerSettings;
  readonly claims: JWTPayload;
  readonly token: ExternalToken;
}

interface Verified {
  readonly token: ExternalToken;
  readonly opens: readonly Door[];
  readonly isGood: () => boolean;
}

export type Issuers = ReturnType<typeof createIssuers>;
type OneIssuer = ReturnType<typeof createIssuer>;

function createIssuer(settings: IssuerSettings) {
  const { introspection } = settings;
  return {
    settings,
    keys: createIssuerKeys(settings),
    ask: introspection && createIntrospection(introspection),
    /** The state of the last introspection. */
    asked: "unused" as IssuerState,
  };
}

/**
 * Verifies the tokens of external issuers, and keeps valid ones while the issuer's keys stay the
 * same, introspected ones for `cache` seconds.
 *
 * @param resource the required audience (RFC 8707) of issuers without their own
 */
export function createIssuers(
  settings: readonly IssuerSettings[],
  resource: () => string,
  log: Log,
) {
  const issuers = new Map(settings.map((one) => [one.issuer, createIssuer(one)]));
  const recent = new LRUCache<string, Verified>({
    maxSize: MAX_CACHED_LENGTH,
    sizeCalculation: (_, token) => token.length + CONTENT_LENGTH,
  });

  /** The issuer that is responsible for a token at a door. */
  function issuerFor(token: string, door: Door): OneIssuer {
    const name = claimedIssuer(token);
    const named = name === undefined ? undefined : issuers.get(name);
    if (named !== undefined) {
      if (named.settings.opens.includes(door)) return named;
      throw new Refusal("token_invalid", {
        detail: "wrong_door",
        token: { issuer: named.settings.issuer },
      });
    }
    const isAsked = ({ ask, settings }: OneIssuer) =>
      ask !== undefined && settings.opens.includes(door);
    const asked = name === undefined ? issuers.values().find(isAsked) : undefined;
    if (asked !== undefined) return asked;
    const detail = name === undefined ? "no_jwt" : "unknown_issuer";
    throw new Refusal("token_invalid", { detail, token: {} });
  }

  /** Verifies a JWT by the issuer's keys, or asks the issuer. */
  async function payloadOf(token: string, issuer: OneIssuer) {
    const { settings, keys, ask } = issuer;
    const { introspection } = settings;
    const audience = settings.audience ?? resource();
    if (ask && (introspection?.always || claimedIssuer(token) === undefined)) {
      const startedAt = Date.now();
      const payload = await ask(token);
      issuer.asked = "ok";
      if (payload === undefined) throw invalidToken("inactive");
      const until = startedAt + (introspection?.cache ?? 0) * 1000;
      const isGood = () => Date.now() < until && Date.now() >= startedAt;
      return { payload, isGood, check: () => requireIntrospected(payload, settings, audience) };
    }
    if (!compact.test(token)) throw invalidToken("malformed");
    const { payload, protectedHeader } = await jwtVerify(token, keys.key, {
      algorithms,
      issuer: settings.issuer,
      audience: [audience].flat(),
      clockTolerance: CLOCK_SKEW_SECONDS,
    });
    const generation = keys.generation();
    return {
      payload,
      isGood: () => generation !== undefined && keys.generation() === generation,
      check() {
        const { typ } = protectedHeader;
        if (typ !== undefined && !types.has(typ.toLowerCase())) throw invalidToken("wrong_type");
      },
    };
  }

  /**
   * Verifies a logout token for the client by which users sign in.
   *
   * @throws Refusal `not_found`, `token_invalid`, `token_expired` or `issuer_unreachable`
   */
  async function verifyLogout(prefix: string, token: string): Promise<Logout> {
    const issuer = issuers.values().find(({ settings }) => settings.prefix === prefix);
    if (issuer?.settings.login === undefined) throw new Refusal("not_found");
    const { settings, keys } = issuer;
    try {
      if (!compact.test(token)) throw invalidToken("malformed");
      const { payload, protectedHeader } = await jwtVerify(token, keys.key, {
        algorithms,
        issuer: settings.issuer,
        audience: issuer.settings.login.client_id,
        clockTolerance: CLOCK_SKEW_SECONDS,
      });
      const { typ = "jwt" } = protectedHeader;
      if (!logoutTypes.has(typ.toLowerCase())) throw invalidToken("wrong_type");
      return readLogout(payload, settings);
    } catch (cause) {
      const about = { issuer: settings.issuer };
      if (cause instanceof IssuerUnreachable) throw unreachable(issuer, cause, about);
      const code = cause instanceof errors.JWTExpired ? "token_expired" : "token_invalid";
      throw new Refusal(code, { detail: detailOf(cause), cause, token: about });
    }
  }

  /** @param read calls its parameter with the claims once they are authentic */
  async function explained<Content>(
    issuer: OneIssuer,
    token: string,
    read: (describe: (claims: JWTPayload) => void) => Promise<Content>,
  ): Promise<Content> {
    const { settings } = issuer;
    let about: RefusedToken = { issuer: settings.issuer };
    try {
      if (token.length > MAX_TOKEN_LENGTH) throw invalidToken("too_long");
      return await read((claims) => {
        about = describeToken(token, claims, settings);
      });
    } catch (cause) {
      const isClaim =
        cause instanceof errors.JWTExpired || cause instanceof errors.JWTClaimValidationFailed;
      // The library checks claims after the signature, so the payload is authentic.
      if (isClaim) about = describeToken(token, cause.payload, settings);
      if (cause instanceof IssuerUnreachable) throw unreachable(issuer, cause, about);
      const isExpired =
        cause instanceof errors.JWTExpired ||
        (cause instanceof Refusal && cause.code === "token_expired");
      const code = isExpired ? "token_expired" : "token_invalid";
      throw new Refusal(code, { detail: detailOf(cause), cause, token: about });
    }
  }

  function verifyBy(issuer: OneIssuer, token: string): Promise<ExternalToken> {
    const { settings } = issuer;
    return explained(issuer, token, async (describe) => {
      const { payload, isGood, check } = await payloadOf(token, issuer);
      describe(payload);
      check();
      if (isOtherKind(payload, settings)) throw invalidToken("wrong_type");
      const content = readExternalToken(token, payload, settings);
      recent.set(token, { token: content, opens: settings.opens, isGood });
      return content;
    });
  }

  function unreachable(issuer: OneIssuer, cause: IssuerUnreachable, token: RefusedToken): Refusal {
    const { message, retryAfter } = cause;
    const isKeyUnknown = cause.cause instanceof errors.JWKSNoMatchingKey;
    if (!isKeyUnknown) {
      if (issuer.keys.state() !== "unreachable") issuer.asked = "unreachable";
      const { issuer: name } = issuer.settings;
      log.warn({ issuer: name, detail: message }, "an authorization server is unreachable");
    }
    const detail = isKeyUnknown ? "unknown_key" : "unreachable";
    return new Refusal("issuer_unreachable", { detail, cause, retryAfter, token });
  }

  /** A token that has been verified and is still good. */
  function recall(token: string, door: Door): ExternalToken | undefined {
    const known = recent.get(token);
    if (known === undefined) return undefined;
    if (!known.isGood() || known.token.expiresAt <= epochSeconds()) {
      recent.delete(token);
      return undefined;
    }
    return known.opens.includes(door) ? known.token : undefined;
  }

  return {
    opens: (door: Door): boolean => settings.some(({ opens }) => opens.includes(door)),
    /** By issuer prefix. */
    get states(): Readonly<Record<string, IssuerState>> {
      const all = issuers.values().map(({ settings, keys, asked }) => {
        const both = [keys.state(), asked];
        const state = (["unreachable", "ok"] as const).find((one) => both.includes(one));
        return [settings.prefix, state ?? "unused"];
      });
      return Object.fromEntries(all);
    },
    close(): void {
      for (const { keys } of issuers.values()) keys.close();
    },
    recall,
    verifyLogout,
    /**
     * Verifies an assertion for the embedded authorization server. The caller checks its client,
     * and that it is used once.
     *
     * @throws Refusal `token_invalid`, `token_expired` or `issuer_unreachable`, with its token
     */
    async verifyAssertion(assertion: string, audience: string): Promise<Assertion> {
      const issuer = issuers.get(claimedIssuer(assertion) ?? "");
      if (issuer?.settings.id_jag !== true) {
        throw new Refusal("token_invalid", { detail: "unknown_issuer", token: {} });
      }
      const { settings, keys } = issuer;
      return explained(issuer, assertion, async (describe) => {
        if (!compact.test(assertion)) throw invalidToken("malformed");
        const { payload: claims } = await jwtVerify(assertion, keys.key, {
          ...{ algorithms, audience, issuer: settings.issuer, typ: ASSERTION_TYPE },
          ...{ clockTolerance: CLOCK_SKEW_SECONDS, maxTokenAge: ASSERTION_AGE },
          requiredClaims: ASSERTION_CLAIMS,
        });
        describe(claims);
        const { aud, sub, jti, authorization_details: limits } = claims;
        // Another audience could replay it here.
        if ([aud].flat().length !== 1) throw invalidToken("wrong_audience");
        // Unknown limits must not get lost (RFC 9396).
        const isText = [sub, jti].every((one) => typeof one === "string" && one !== "");
        if (!isText || limits !== undefined) throw invalidToken("bad_claim");
        return { settings, claims, token: readExternalToken(assertion, claims, settings) };
      });
    },
    /** @throws Refusal `token_invalid`, `token_expired` or `issuer_unreachable`, with its token */
    verify: async (token: string, door: Door): Promise<ExternalToken> =>
      recall(token, door) ?? verifyBy(issuerFor(token, door), token),
  };
}
