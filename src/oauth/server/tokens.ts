import { errors, type JWTPayload, jwtVerify } from "jose";
import { isDatabaseOrEvery, isUsername } from "../../access/names.ts";
import { Refusal } from "../../refusal.ts";
import { knownScopes } from "./consent.ts";
import { SIGNING_ALGORITHM, type SigningKeys } from "./keys.ts";
import type { AccessToken } from "./options.ts";
import type { StateStore } from "./store.ts";

/** The type of a JWT access token (RFC 9068, section 2.1). */
const TYPE = "at+jwt";
const MAX_LENGTH = 8192;

/** What it takes to tell an own token from every other. */
export interface TokenContext {
  readonly issuer: string;
  readonly resource: string;
  readonly keys: SigningKeys;
  readonly store: Pick<StateStore, "find" | "isTokenRevoked">;
}

function invalid(detail: string, cause?: unknown): Refusal {
  return new Refusal("token_invalid", { detail, cause });
}

function isSeconds(value: unknown): value is number {
  return typeof value === "number" && Number.isSafeInteger(value) && value >= 0;
}

function isText(value: unknown): value is string {
  return typeof value === "string" && value !== "";
}

/** A token with the grant that it was issued under. */
export interface GrantedToken extends Omit<AccessToken, "requireStillGranted"> {
  readonly grantId: string;
}

function readClaims(payload: JWTPayload): GrantedToken {
  const { sub, database, read_only, scope, cred, jti, client_id, grant, iat, exp } = payload;
  if (!isUsername(sub)) throw invalid("claim sub");
  if (!isDatabaseOrEvery(database)) throw invalid("claim database");
  if (typeof read_only !== "boolean") throw invalid("claim read_only");
  if (typeof scope !== "string") throw invalid("claim scope");
  if (typeof cred !== "string") throw invalid("claim cred");
  if (!isText(jti) || !isText(client_id) || !isText(grant)) {
    throw invalid("claim jti, client_id or grant");
  }
  if (!isSeconds(iat) || !isSeconds(exp)) throw invalid("claim iat or exp");
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

/**
 * Reads an access token of this server, whatever has become of its grant since.
 *
 * @throws Refusal `token_invalid` or `token_expired`
 */
export async function readAccessToken(
  { keys, issuer, resource }: TokenContext,
  token: string,
): Promise<GrantedToken> {
  if (token.length > MAX_LENGTH) throw invalid("too long");
  try {
    const { payload, protectedHeader } = await jwtVerify(
      token,
      ({ kid }) => {
        const key = typeof kid === "string" ? keys.verifier(kid) : undefined;
        if (key === undefined) throw invalid("unknown kid");
        return key;
      },
      { algorithms: [SIGNING_ALGORITHM], issuer, audience: resource },
    );
    // Compared by hand: the library also takes the media type's long form.
    if (protectedHeader.typ !== TYPE) throw invalid("typ");
    if (typeof payload.aud !== "string") throw invalid("claim aud");
    return readClaims(payload);
  } catch (error) {
    if (error instanceof Refusal) throw error;
    if (error instanceof errors.JWTExpired) throw new Refusal("token_expired", { cause: error });
    if (error instanceof errors.JOSEError) throw invalid(error.code, error);
    throw invalid("unreadable", error);
  }
}

/**
 * Verifies an access token: it is this server's own, for the resource, and neither it nor the
 * grant behind it was revoked. What has become of its user is for the caller to judge.
 *
 * @throws Refusal `token_invalid`, `token_expired` or `token_revoked`
 */
export async function verifyAccessToken(
  context: TokenContext,
  token: string,
): Promise<AccessToken> {
  const { grantId, ...read } = await readAccessToken(context, token);
  const { store } = context;
  const requireStillGranted = () => {
    const revoked = (detail: string) => new Refusal("token_revoked", { detail });
    if (store.isTokenRevoked(read.tokenId)) throw revoked("revoked");
    if (store.find("Grant", grantId) === undefined) throw revoked("grant revoked");
  };
  requireStillGranted();
  return { ...read, requireStillGranted };
}
