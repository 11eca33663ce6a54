import { randomUUID } from "node:crypto";
import { SignJWT } from "jose/jwt/sign";
import { isDatabaseOrEvery, isExternalUsername, isUsername } from "../access/identifiers.ts";
import { decide } from "../access/policy.ts";
import { EVERY_DATABASE, isRole, type Role, widestRole } from "../access/roles.ts";
import { grantsOf, type Snapshot } from "../access/snapshot.ts";
import { entriesIn } from "../access/user-grants.ts";
import { epochSeconds } from "../clock.ts";
import { Refusal } from "../refusal.ts";
import { invalidToken, isSeconds, type JsonObject, type Pin } from "./jwt-verification.ts";
import type { KeyRing } from "./key-ring.ts";
import { VerifiedTokens } from "./verified-tokens.ts";

/** The audience of login tokens: this gateway, under whatever URL. */
const LOGIN_AUDIENCE = "gatehouse";
const TYPE = "JWT";
/** A login token has well under 1 KiB; nothing longer is worth verifying. */
const MAX_TOKEN_LENGTH = 4096;

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
type TokenRequest = Pick<TokenClaims, "username" | "database" | "role" | "credential"> & {
  /** Seconds. */
  readonly lifetime: number;
  /** The least `iat`, so that a token outlives a limit set in the same second. */
  readonly notBefore: number;
};

function readClaims({ sub, database, role, cred, jti, iat, exp }: JsonObject): TokenClaims {
  if (!isUsername(sub) && !isExternalUsername(sub)) throw invalidToken("claim sub");
  if (!isDatabaseOrEvery(database)) throw invalidToken("claim database");
  if (role !== undefined && !isRole(role)) throw invalidToken("claim role");
  if (typeof cred !== "string") throw invalidToken("claim cred");
  if (typeof jti !== "string" || jti === "") throw invalidToken("claim jti");
  if (!isSeconds(iat) || !isSeconds(exp)) throw invalidToken("claim iat or exp");
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
): Promise<{ token: string; claims: TokenClaims }> {
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

/** Issues and verifies login tokens; `ring` is asked anew each time, so that keys can rotate. */
export function createTokenAuthority(ring: () => KeyRing, issuer: string) {
  const pin: Pin = {
    get algorithm() {
      return ring().algorithm;
    },
    verifier: (kid) => ring().verifier(kid),
    type: TYPE,
    issuer,
    audience: LOGIN_AUDIENCE,
    longest: MAX_TOKEN_LENGTH,
  };
  const verified = new VerifiedTokens(pin, readClaims);
  return {
    issue: (request: TokenRequest) => issueToken(ring(), issuer, request),
    /** What a token says that was verified before, and would be good now; undefined for any other. */
    recall: (token: string): TokenClaims | undefined => verified.recall(token),
    /** @throws Refusal `token_expired` or `token_invalid` */
    verify: (token: string): TokenClaims => verified.verify(token),
    /** What has become of the tokens that were shown. */
    metrics: verified.metrics,
  };
}

/** The authority over login tokens. */
export type TokenAuthority = ReturnType<typeof createTokenAuthority>;

/**
 * The role that the token names: the one on its database, or the widest of all.
 *
 * @throws Refusal if there is none on the database that was asked for
 */
export function tokenRole(
  snapshot: Snapshot,
  username: string,
  database: string,
): Role | undefined {
  if (database === EVERY_DATABASE) return widestRole(entriesIn(grantsOf(snapshot, username)));
  // Every role may read, so this asks whether there is any.
  const subject = { username, tokenDatabase: database };
  const { reason, role } = decide(snapshot, subject, "SELECT", database);
  if (reason !== "allowed") throw new Refusal(reason);
  return role === "None" ? undefined : role;
}
