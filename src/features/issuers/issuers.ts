import { isDeepStrictEqual } from "node:util";
import { compactVerify, errors, type JWTPayload, type JWTVerifyOptions, jwtVerify } from "jose";
import { LRUCache } from "lru-cache";
import * as z from "zod";
import { errorMessage } from "../../core/base/client-error.ts";
import { epochSeconds } from "../../core/base/clock.ts";
import { Refusal, type RefusedToken } from "../../core/base/refusal.ts";
import { credentialReader } from "../../core/config/resolve.ts";
import type { Door, IssuerSettings } from "../../core/config/schema.ts";
import {
  claimedIssuer,
  type ExternalIssuers,
  type ExternalToken,
} from "../../core/identity/authenticate.ts";
import { invalidToken } from "../../core/identity/jwt-verification.ts";
import { parseAccepted } from "../../core/json/exact.ts";
import type { Log } from "../../core/observe/log.ts";
import {
  CLOCK_SKEW_SECONDS,
  describeToken,
  isOtherKind,
  type Logout,
  readExternalToken,
  readLogout,
} from "./external-token.ts";
import {
  createIssuerKeys,
  fetchJson,
  ISSUER_TIMEOUT_MS,
  type IssuerState,
  IssuerUnreachable,
  RETRY_MS,
  UnusableKey,
} from "./issuer-keys.ts";

/** Asymmetric algorithms only: anyone who knows a shared secret could forge a token. */
const algorithms = [
  "ES256",
  "ES384",
  "ES512",
  "EdDSA",
  "Ed25519",
  "PS256",
  "PS384",
  "PS512",
  "RS256",
  "RS384",
  "RS512",
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

function refusalDetail(error: unknown): string {
  if (error instanceof Refusal) return error.detail ?? "malformed";
  if (error instanceof UnusableKey) return "unusable_key";
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
  audience: readonly string[],
): void {
  if (iss !== undefined && iss !== issuer) throw invalidToken("bad_claim");
  if (![aud].flat().some((one) => one !== undefined && audience.includes(one))) {
    throw invalidToken("wrong_audience");
  }
  const now = epochSeconds();
  if (nbf !== undefined && nbf > now + CLOCK_SKEW_SECONDS) throw invalidToken("not_yet_valid");
  if (exp !== undefined && exp <= now - CLOCK_SKEW_SECONDS) {
    throw new Refusal("token_expired", { detail: "expired" });
  }
}

/** The claims that decide a caller's rights. */
function rightsOf({ user, groups, groupsProblem, attributes, scopes, client }: ExternalToken) {
  return { user, groups, groupsProblem, attributes, scopes, client };
}

export interface Assertion {
  readonly settings: IssuerSettings;
  readonly claims: JWTPayload;
  readonly token: ExternalToken;
}

const answerShape = z.looseObject({
  active: z.boolean(),
  iss: z.string().optional(),
  exp: z.number().nonnegative().optional(),
  iat: z.number().nonnegative().optional(),
  nbf: z.number().nonnegative().optional(),
});

/** Between questions about the token of a stream that stays open. */
const RECHECK_MS = 10_000;

/** As much as a client may cause by inventing tokens. */
const MAX_IN_FLIGHT = 64;
/** Of these for tokens in use, so that others can be asked about. */
const MAX_RECHECKS = MAX_IN_FLIGHT / 2;

/** `application/x-www-form-urlencoded` (RFC 6749, section 2.3.1). */
function formEncode(text: string): string {
  return new URLSearchParams([["", text]]).toString().slice(1);
}

/**
 * Asks an issuer about tokens (RFC 7662). Concurrent questions about one token are one request.
 *
 * @returns the claims of an active token, otherwise undefined, or throws IssuerUnreachable
 */
function createIntrospection(settings: NonNullable<IssuerSettings["introspection"]>) {
  const { url, client_id: client, client_secret_file: file } = settings;
  const inFlight = new Map<string, Promise<JWTPayload | undefined>>();
  const readSecret = credentialReader(file);

  async function ask(token: string): Promise<JWTPayload | undefined> {
    if (inFlight.size >= MAX_IN_FLIGHT) {
      throw new IssuerUnreachable("too many questions", 1000, undefined, "too_many_questions");
    }
    try {
      const pair = `${formEncode(client)}:${formEncode(readSecret())}`;
      const answer = await fetchJson(new URL(url), {
        method: "POST",
        signal: AbortSignal.timeout(ISSUER_TIMEOUT_MS),
        headers: { authorization: `Basic ${Buffer.from(pair).toString("base64")}` },
        body: new URLSearchParams({ token, token_type_hint: "access_token" }),
      });
      const { data, error } = answerShape.safeParse(answer);
      if (data === undefined) {
        const member = error.issues[0]?.path.join(".") || "document";
        throw new Error(`${url} answered with an invalid ${member}`);
      }
      const { active, ...claims } = data;
      return active ? (claims as JWTPayload) : undefined;
    } catch (cause) {
      throw new IssuerUnreachable(errorMessage(cause), RETRY_MS, cause);
    }
  }

  return (token: string) => {
    const asked = inFlight.get(token);
    if (asked !== undefined) return asked;
    const asking = ask(token).finally(() => inFlight.delete(token));
    inFlight.set(token, asking);
    return asking;
  };
}

interface OneIssuer {
  readonly settings: IssuerSettings;
  readonly keys: ReturnType<typeof createIssuerKeys>;
  /** Undefined without introspection. */
  readonly ask: ((token: string) => Promise<JWTPayload | undefined>) | undefined;
  /** The result of the last introspection. */
  asked: IssuerState;
  /** Introspections of tokens in use that have no answer yet. */
  rechecks: number;
  /** When one token in use is tried again after the issuer has not answered, and 0 if it has. */
  retryAt: number;
}

function createIssuer(settings: IssuerSettings): OneIssuer {
  const { introspection } = settings;
  return {
    settings,
    keys: createIssuerKeys(settings),
    ask: introspection && createIntrospection(introspection),
    asked: "unused",
    rechecks: 0,
    retryAt: 0,
  };
}

/**
 * Verifies the tokens of external issuers, and keeps valid ones while the issuer's keys stay the
 * same, introspected ones for `cache` seconds.
 */
export class Issuers implements ExternalIssuers {
  readonly #issuers: ReadonlyMap<string, OneIssuer>;
  readonly #resource: () => string | readonly string[];
  readonly #log: Log;
  readonly #recent = new LRUCache<string, { token: ExternalToken; isGood: () => boolean }>({
    maxSize: MAX_CACHED_LENGTH,
    sizeCalculation: (_, token) => token.length + CONTENT_LENGTH,
  });

  /** @param resource the required audience (RFC 8707) of issuers without their own */
  constructor(
    settings: readonly IssuerSettings[],
    resource: () => string | readonly string[],
    log: Log,
  ) {
    this.#issuers = new Map(settings.map((one) => [one.issuer, createIssuer(one)]));
    this.#resource = resource;
    this.#log = log;
  }

  get states(): Readonly<Record<string, IssuerState>> {
    const all = this.#issuers.values().map(({ settings, keys, asked }) => {
      const both = [keys.state(), asked];
      const state = (["unreachable", "ok"] as const).find((one) => both.includes(one));
      return [settings.prefix, state ?? "unused"];
    });
    return Object.fromEntries(all);
  }

  close(): void {
    for (const { keys } of this.#issuers.values()) keys.close();
  }

  /** A token that has been verified and is still good. */
  recall(token: string, door: Door): ExternalToken | undefined {
    const known = this.#recent.get(token);
    if (known === undefined) return undefined;
    if (!known.isGood() || known.token.expiresAt <= epochSeconds()) {
      this.#recent.delete(token);
      return undefined;
    }
    const { settings } = this.#issuers.get(known.token.issuer) ?? {};
    return settings?.opens.includes(door) ? known.token : undefined;
  }

  /**
   * Verifies the signature of an ID token. The client that received it checks the claims.
   *
   * @throws Refusal `token_invalid`, or `issuer_unreachable` if the keys cannot tell
   */
  async verifyIdToken({ issuer: name }: IssuerSettings, token: string): Promise<void> {
    const issuer = this.#issuers.get(name);
    if (issuer === undefined) throw new Refusal("not_found");
    try {
      await issuer.keys.verify(() => compactVerify(token, issuer.keys.key, { algorithms }));
    } catch (cause) {
      const about = { issuer: name };
      if (cause instanceof IssuerUnreachable) throw this.#unreachable(issuer, cause, about);
      const detail = refusalDetail(cause);
      if (detail !== "unknown_key" && detail !== "unusable_key") {
        throw new Refusal("token_invalid", { detail, cause, token: about });
      }
      const failure = new IssuerUnreachable(errorMessage(cause), RETRY_MS, cause, detail);
      throw this.#unreachable(issuer, failure, about);
    }
  }

  /**
   * Verifies a logout token for the client by which users sign in.
   *
   * @throws Refusal `not_found`, `token_invalid`, `token_expired` or `issuer_unreachable`
   */
  async verifyLogout(prefix: string, token: string): Promise<Logout> {
    const issuer = this.#issuers.values().find(({ settings }) => settings.prefix === prefix);
    const { login } = issuer?.settings ?? {};
    if (issuer === undefined || login === undefined) throw new Refusal("not_found");
    return this.#explained(issuer, token, async () => {
      const verified = await this.#verifyJwt(token, issuer, { audience: login.client_id });
      const { typ = "jwt" } = verified.protectedHeader;
      if (!logoutTypes.has(typ.toLowerCase())) throw invalidToken("wrong_type");
      return readLogout(verified.payload, issuer.settings);
    });
  }

  /**
   * Verifies an assertion for the embedded authorization server. The caller checks its client,
   * and that it is used once.
   *
   * @throws Refusal `token_invalid`, `token_expired` or `issuer_unreachable`, with its token
   */
  async verifyAssertion(assertion: string, audience: string): Promise<Assertion> {
    const issuer = this.#issuers.get(claimedIssuer(assertion) ?? "");
    if (issuer?.settings.id_jag !== true) {
      throw new Refusal("token_invalid", { detail: "unknown_issuer", token: {} });
    }
    const { settings } = issuer;
    return this.#explained(issuer, assertion, async (describe) => {
      const { payload: claims } = await this.#verifyJwt(assertion, issuer, {
        audience,
        typ: ASSERTION_TYPE,
        maxTokenAge: ASSERTION_AGE,
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
  }

  /** @throws Refusal `token_invalid`, `token_expired` or `issuer_unreachable`, with its token */
  async verify(token: string, door: Door): Promise<ExternalToken> {
    return this.recall(token, door) ?? this.#verifyBy(this.#issuerFor(token, door), token);
  }

  /** The issuer that is responsible for a token at a door. */
  #issuerFor(token: string, door: Door): OneIssuer {
    const name = claimedIssuer(token);
    const isOpen = ({ settings }: OneIssuer) => settings.opens.includes(door);
    const found =
      name === undefined
        ? this.#issuers.values().find((one) => one.ask !== undefined && isOpen(one))
        : this.#issuers.get(name);
    if (found === undefined) {
      const detail = name === undefined ? "no_jwt" : "unknown_issuer";
      throw new Refusal("token_invalid", { detail, token: {} });
    }
    if (isOpen(found)) return found;
    const { issuer } = found.settings;
    throw new Refusal("token_invalid", { detail: "wrong_door", token: { issuer } });
  }

  async #verifyJwt(token: string, { settings, keys }: OneIssuer, options: JWTVerifyOptions) {
    if (!compact.test(token)) throw invalidToken("malformed");
    const clockTolerance = CLOCK_SKEW_SECONDS;
    const { issuer } = settings;
    const verifyOptions = { algorithms, clockTolerance, issuer, ...options };
    const { protectedHeader } = await keys.verify(() => jwtVerify(token, keys.key, verifyOptions));
    // PHP escapes the slashes in names of claims, which `JSON.parse` can misread.
    const [, claims = ""] = token.split(".");
    const payload: JWTPayload = parseAccepted(Buffer.from(claims, "base64url").toString());
    return { protectedHeader, payload };
  }

  /** @param read calls its parameter with the claims once they are authentic */
  async #explained<Content>(
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
      if (cause instanceof IssuerUnreachable) throw this.#unreachable(issuer, cause, about);
      const isExpired =
        cause instanceof errors.JWTExpired ||
        (cause instanceof Refusal && cause.code === "token_expired");
      const code = isExpired ? "token_expired" : "token_invalid";
      if (cause instanceof UnusableKey) about = { ...about, cause: cause.message };
      throw new Refusal(code, { detail: refusalDetail(cause), cause, token: about });
    }
  }

  /** Verifies a JWT, or asks the issuer about the token. */
  #verifyBy(issuer: OneIssuer, token: string): Promise<ExternalToken> {
    const { settings, keys, ask } = issuer;
    const { introspection } = settings;
    const audience = [settings.audience ?? this.#resource()].flat();
    return this.#explained(issuer, token, async (describe) => {
      let payload: JWTPayload;
      let isGood: () => boolean;
      const isAsked = introspection?.always || claimedIssuer(token) === undefined;
      if (ask && isAsked) {
        const startedAt = Date.now();
        const active = await ask(token);
        issuer.asked = "ok";
        if (active === undefined) throw invalidToken("inactive");
        payload = active;
        describe(payload);
        requireIntrospected(payload, settings, audience);
        const until = startedAt + (introspection?.cache ?? 0) * 1000;
        isGood = () => Date.now() < until && Date.now() >= startedAt;
      } else {
        const verified = await this.#verifyJwt(token, issuer, { audience });
        payload = verified.payload;
        describe(payload);
        const { typ = "jwt" } = verified.protectedHeader;
        if (!types.has(typ.toLowerCase())) throw invalidToken("wrong_type");
        const generation = keys.generation();
        isGood = () => generation !== undefined && keys.generation() === generation;
      }
      if (isOtherKind(payload, settings)) throw invalidToken("wrong_type");
      const read = readExternalToken(token, payload, settings);
      const content = { ...read, isKept: this.#watch(issuer, token, isAsked, read) };
      this.#recent.set(token, { token: content, isGood });
      return content;
    });
  }

  /**
   * Verifies a token in use again, in the background, once its issuer's keys have changed or are
   * old, or its introspection no longer counts.
   *
   * @returns a function that returns false once the issuer no longer vouches for the token, or says
   * other things about its user
   */
  #watch(issuer: OneIssuer, token: string, isAsked: boolean, before: ExternalToken): () => boolean {
    let isKept = true;
    let dueAt = isAsked ? Date.now() + RECHECK_MS : 0;
    const check = async () => {
      dueAt = Date.now() + RECHECK_MS;
      if (issuer.retryAt > 0) issuer.retryAt = dueAt;
      if (isAsked) issuer.rechecks++;
      try {
        const content = await this.#verifyBy(issuer, token);
        isKept = isDeepStrictEqual(rightsOf(content), rightsOf(before));
        issuer.retryAt = 0;
        if (!isAsked) dueAt = 0;
      } catch (error) {
        const { status, detail } = error instanceof Refusal ? error : {};
        // The key was known before, so it is not one that has just been added.
        isKept = status !== 401 && detail !== "unknown_key";
        if (isKept) issuer.retryAt = Date.now() + RECHECK_MS;
      } finally {
        if (isAsked) issuer.rechecks--;
      }
    };
    return () => {
      const wait = Math.max(dueAt, issuer.retryAt) - Date.now();
      // Longer only if the clock was set back.
      const isTime = wait <= 0 || wait > RECHECK_MS;
      const isDue = isKept && isTime && issuer.rechecks < MAX_RECHECKS;
      if (isDue && !this.#recent.get(token)?.isGood()) void check();
      return isKept;
    };
  }

  #unreachable(issuer: OneIssuer, cause: IssuerUnreachable, about: RefusedToken): Refusal {
    const { message, retryAfter, detail } = cause;
    if (detail === "unreachable") {
      if (issuer.keys.state() !== "unreachable") issuer.asked = "unreachable";
      const { issuer: name } = issuer.settings;
      this.#log.warn(
        { issuer: name, detail, cause: message },
        "an authorization server is unreachable",
      );
    }
    const token = { ...about, cause: message };
    return new Refusal("issuer_unreachable", { detail, cause, retryAfter, token });
  }
}
