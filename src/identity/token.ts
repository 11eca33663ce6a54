import { randomUUID } from "node:crypto";
import { errors, type JWTPayload, jwtVerify, SignJWT } from "jose";
import { isDatabaseOrEvery, isExternalUsername, isUsername } from "../access/names.ts";
import { isRole, type Role } from "../access/roles.ts";
import { epochSeconds } from "../clock.ts";
import { Refusal } from "../refusal.ts";
import type { KeyRing } from "./key-ring.ts";

/** The audience of login tokens: this gateway, under whatever URL. */
export const LOGIN_AUDIENCE = "gatehouse";
const TYPE = "JWT";
/** A login token has well under 1 KiB; nothing longer is worth verifying. */
const MAX_LENGTH = 4096;

/** What a login token says (RFC 7519); times in epoch seconds. */
export interface TokenClaims {
  readonly username: string;
  /** The only database it opens, or `*`. */
  readonly database: string;
  /** For the client's information; authorization reads the access file. */
  readonly role: Role | undefined;
  /** The fingerprint of the password that it was issued for. */
  readonly credential: string;
  readonly tokenId: string;
  readonly issuedAt: number;
  readonly expiresAt: number;
}

/** What is needed to issue a token; the rest is made up here. */
export type TokenRequest = Pick<TokenClaims, "username" | "database" | "role" | "credential"> & {
  /** Seconds. */
  readonly lifetime: number;
  /** The least `iat`, so that a token outlives a limit set in the same second. */
  readonly notBefore: number;
};

/** A token that was just issued. */
export interface FreshToken {
  readonly token: string;
  readonly claims: TokenClaims;
}

/** Issues and verifies login tokens. */
export interface TokenAuthority {
  issue(request: TokenRequest): Promise<FreshToken>;
  /** @throws Refusal `token_expired` or `token_invalid` */
  verify(token: string): Promise<TokenClaims>;
}

function invalid(detail: string, cause?: unknown): Refusal {
  return new Refusal("token_invalid", { detail, cause });
}

function isSeconds(value: unknown): value is number {
  return typeof value === "number" && Number.isSafeInteger(value) && value >= 0;
}

function readClaims(payload: JWTPayload): TokenClaims {
  const { sub, database, role, cred, jti, iat, exp } = payload;
  if (!isUsername(sub) && !isExternalUsername(sub)) throw invalid("claim sub");
  if (!isDatabaseOrEvery(database)) throw invalid("claim database");
  if (role !== undefined && !isRole(role)) throw invalid("claim role");
  if (typeof cred !== "string") throw invalid("claim cred");
  if (typeof jti !== "string" || jti === "") throw invalid("claim jti");
  if (!isSeconds(iat) || !isSeconds(exp)) throw invalid("claim iat or exp");
  return {
    username: sub,
    database,
    role,
    credential: cred,
    tokenId: jti,
    issuedAt: iat,
    expiresAt: exp,
  };
}

async function issueToken(
  ring: KeyRing,
  issuer: string,
  { lifetime, notBefore, ...subject }: TokenRequest,
): Promise<FreshToken> {
  const issuedAt = Math.max(epochSeconds(), notBefore);
  const claims = { ...subject, tokenId: randomUUID(), issuedAt, expiresAt: issuedAt + lifetime };
  const { database, role, credential: cred } = subject;
  const token = await new SignJWT({ database, cred, ...(role === undefined ? {} : { role }) })
    .setProtectedHeader({ alg: ring.algorithm, kid: ring.signer.kid, typ: TYPE })
    .setSubject(claims.username)
    .setIssuer(issuer)
    .setAudience(LOGIN_AUDIENCE)
    .setJti(claims.tokenId)
    .setIssuedAt(issuedAt)
    .setExpirationTime(claims.expiresAt)
    .sign(ring.signer.key);
  return { token, claims };
}

async function verifyToken(ring: KeyRing, issuer: string, token: string): Promise<TokenClaims> {
  if (token.length > MAX_LENGTH) throw invalid("too long");
  try {
    const { payload, protectedHeader } = await jwtVerify(
      token,
      ({ kid }) => {
        const key = typeof kid === "string" ? ring.verifier(kid) : undefined;
        if (key === undefined) throw invalid("unknown kid");
        return key;
      },
      { algorithms: [ring.algorithm], issuer, audience: LOGIN_AUDIENCE },
    );
    // Compared by hand: the library also takes the media type's long form.
    if (protectedHeader.typ !== TYPE) throw invalid("typ");
    if (typeof payload.aud !== "string") throw invalid("claim aud");
    return readClaims(payload);
  } catch (error) {
    if (error instanceof Refusal) throw error;
    if (error instanceof errors.JWTExpired) throw new Refusal("token_expired", { cause: error });
    if (error instanceof errors.JOSEError) throw invalid(error.code, error);
    // Whatever else a crafted token makes the parser throw, it is no valid token.
    throw invalid("unreadable", error);
  }
}

/** An authority over login tokens; `ring` is asked anew each time, so that keys can rotate. */
export function createTokenAuthority(ring: () => KeyRing, issuer: string): TokenAuthority {
  return {
    issue: (request) => issueToken(ring(), issuer, request),
    verify: (token) => verifyToken(ring(), issuer, token),
  };
}
