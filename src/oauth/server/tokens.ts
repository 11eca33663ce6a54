import type { KeyObject } from "node:crypto";
import type { JWK } from "jose";
import { isDatabaseOrEvery, isUsername } from "../../access/roles.ts";
import { epochSeconds } from "../../clock.ts";
import {
  invalidToken,
  isSeconds,
  type JsonObject,
  type Pin,
} from "../../identity/jwt-verification.ts";
import { type KeyStore, keyState, openKeyRing } from "../../identity/key-store.ts";
import { VerifiedTokens } from "../../identity/token.ts";
import type { Log } from "../../observe/log.ts";
import { Refusal } from "../../refusal.ts";
import { knownScopes } from "./connections.ts";
import type { AccessToken, AuthorizationServerOptions } from "./options.ts";
import { lifetimes, SIGNING_ALGORITHM } from "./protocol.ts";
import type { StateStore } from "./state-store.ts";

/** The authorization server's own keys, which sign only its access tokens. */
export interface SigningKeys {
  readonly signer: string;
  readonly privateKeys: readonly (JWK & { kty: string; kid: string })[];
  verifier(kid: string): KeyObject | undefined;
}

/**
 * Loads the keys. Creates the first one if there is none.
 *
 * @throws KeyFileError or UnsafeFileError if a key cannot be used
 */
export async function openSigningKeys(store: KeyStore): Promise<SigningKeys> {
  const ring = await openKeyRing(store, SIGNING_ALGORITHM);
  const usable = (await store.read()).filter(
    (key) => key.alg === SIGNING_ALGORITHM && keyState(key, epochSeconds()) !== "expired",
  );
  return {
    signer: ring.signer.kid,
    privateKeys: usable.map(({ kid, alg, jwk }) => ({ ...jwk, kid, alg, use: "sig" })),
    verifier: (kid) => ring.verifier(kid),
  };
}

/** Calls remembered as recorded. Beyond that the memory is cleared. */
const MAX_NOTED_CALLS = 10_000;

/** Records once which tools each app has called, for its user to see. */
export class CallNotes {
  readonly #store: Pick<StateStore, "noteCall">;
  readonly #log: Log;
  readonly #noted = new Set<string>();

  constructor(store: Pick<StateStore, "noteCall">, log: Log) {
    this.#store = store;
    this.#log = log;
  }

  /** A failure to record never blocks a call. */
  note(grantId: string, tool: string): void {
    const call = `${grantId} ${tool}`;
    if (this.#noted.has(call)) return;
    if (this.#noted.size >= MAX_NOTED_CALLS) this.#noted.clear();
    this.#noted.add(call);
    const expires = epochSeconds() + lifetimes.grant;
    this.#store.noteCall(grantId, tool, expires).catch((error: unknown) => {
      this.#log.warn({ err: error }, "the call of a tool was not written down");
    });
  }
}

/** Type of a JWT access token (RFC 9068, section 2.1). */
const TYPE = "at+jwt";
const MAX_TOKEN_LENGTH = 8192;

function isText(value: unknown): value is string {
  return typeof value === "string" && value !== "";
}

export interface GrantedToken extends Omit<AccessToken, "requireStillGranted" | "noteCall"> {
  readonly grantId: string;
}

function readClaims(claims: JsonObject): GrantedToken {
  const { sub, database, read_only, scope, cred, jti, client_id, grant, iat, exp } = claims;
  if (!isUsername(sub)) throw invalidToken("claim sub");
  if (!isDatabaseOrEvery(database)) throw invalidToken("claim database");
  if (typeof read_only !== "boolean") throw invalidToken("claim read_only");
  if (typeof scope !== "string") throw invalidToken("claim scope");
  if (typeof cred !== "string") throw invalidToken("claim cred");
  if (!isText(jti) || !isText(client_id) || !isText(grant)) {
    throw invalidToken("claim jti, client_id or grant");
  }
  if (!isSeconds(iat) || !isSeconds(exp)) throw invalidToken("claim iat or exp");
  return {
    username: sub,
    database,
    readOnly: read_only,
    scopes: new Set(knownScopes(scope)),
    credential: cred,
    tokenId: jti,
    clientId: client_id,
    grantId: grant,
    issuedAt: iat,
    expiresAt: exp,
  };
}

/** Verifies access tokens without regard to their grants. */
export type AccessTokens = Pick<VerifiedTokens<GrantedToken>, "verify">;

export function createAccessTokens(
  { issuer, resource }: Pick<AuthorizationServerOptions, "issuer" | "resource">,
  keys: Pick<SigningKeys, "verifier">,
): AccessTokens {
  const pin: Pin = {
    algorithm: SIGNING_ALGORITHM,
    verifier: (kid) => keys.verifier(kid),
    type: TYPE,
    issuer,
    audience: resource,
    longest: MAX_TOKEN_LENGTH,
  };
  return new VerifiedTokens(pin, readClaims);
}

/**
 * Verifies an access token: issued by this server for its resource, and neither it nor its grant
 * revoked. The caller checks the user.
 *
 * @throws Refusal `token_invalid`, `token_expired` or `token_revoked`
 */
export function verifyAccessToken(
  accessTokens: AccessTokens,
  store: Pick<StateStore, "isGrantEnded" | "isTokenRevoked">,
  calls: CallNotes,
  token: string,
): AccessToken {
  const { grantId, ...read } = accessTokens.verify(token);
  const requireStillGranted = () => {
    const revoked = (detail: string) => new Refusal("token_revoked", { detail });
    if (store.isTokenRevoked(read.tokenId)) throw revoked("revoked");
    if (store.isGrantEnded(grantId)) throw revoked("grant revoked");
  };
  requireStillGranted();
  return { ...read, requireStillGranted, noteCall: (tool) => calls.note(grantId, tool) };
}
