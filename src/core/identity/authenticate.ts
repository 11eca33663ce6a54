import { isUtf8 } from "node:buffer";
import { hash } from "node:crypto";
import type { IncomingHttpHeaders } from "node:http";
import { decodeProtectedHeader } from "jose/decode/protected_header";
import { decodeJwt } from "jose/jwt/decode";
import type { Attributes, Subject, User } from "../access/grant.ts";
import { effectiveGrants } from "../access/groups.ts";
import { parsePasswordHash } from "../access/password-hash.ts";
import { EVERY_DATABASE } from "../access/roles.ts";
import { blankUser, type Snapshot } from "../access/snapshot.ts";
import { epochSeconds } from "../base/clock.ts";
import { memoize, memoizeByObject } from "../base/memoize.ts";
import { Refusal, type RefusalCode } from "../base/refusal.ts";
import { type Door, tokenHeaders } from "../config/schema.ts";
import type { IssuerStates } from "../observe/metrics.ts";
import type { Revocations } from "./revocations.ts";
import { isLoggedOut, isSignInEnded, parseSignIn } from "./sign-in.ts";
import type { TokenClaims } from "./token.ts";

/** The credentials that open endpoints besides those for data. */
export const bearerOnly: readonly string[] = ["bearer"];

export type Credential =
  | { readonly token: string }
  | { readonly username: string; readonly password: string };

/** RFC 6750, section 2.1. @throws Refusal `token_invalid` */
function requireTokenForm(text: string): string {
  if (/^[A-Za-z0-9._~+/-]+=*$/.test(text)) return text;
  throw new Refusal("token_invalid", { detail: "no bearer token" });
}

/** RFC 6750, section 2.1. @throws Refusal `unauthenticated`, `token_invalid` */
export function readBearerToken(header: string | undefined): string {
  if (header === undefined) throw new Refusal("unauthenticated");
  const [, token = ""] = /^bearer +(.*)$/i.exec(header) ?? [];
  return requireTokenForm(token);
}

/** A signed JWT in compact form: its header begins with `{"` (RFC 7519, section 3). */
const signedToken = /^eyJ[\w-]*\.[\w-]+\.[\w-]+$/;

/** An opaque token of this gateway: 32 random bytes in base64url. */
const opaqueToken = /^gh_[\w-]{43}$/;

/** True also for a part of an opaque token, which must not be sent to an issuer either. */
export function isOpaque(token: string): boolean {
  return token.startsWith("gh_");
}

/**
 * A username and a password, or any username and a token (RFC 7617, section 2).
 *
 * @throws Refusal `credentials_invalid`
 */
function readBasic(encoded: string): Credential {
  const bytes = Buffer.from(encoded, "base64");
  const [, username, password] = /^([^:]*):(.*)$/s.exec(bytes.toString()) ?? [];
  const isValid = /^[A-Za-z0-9+/]+={0,2}$/.test(encoded) && isUtf8(bytes);
  if (!isValid || username === undefined || password === undefined) {
    throw new Refusal("credentials_invalid", { detail: "not in the form of RFC 7617" });
  }
  const isToken = signedToken.test(password) || opaqueToken.test(password);
  return isToken ? { token: password } : { username, password };
}

/** How a client sends what `auth.accept` lists, for messages. */
const forms: Readonly<Record<string, string>> = {
  bearer: "Authorization: Bearer",
  basic: "Authorization: Basic",
  apikey: "Authorization: ApiKey",
};

function describeForms(accept: readonly string[]): string {
  return accept.map((one) => forms[one] ?? `the header ${one.slice("header:".length)}`).join(", ");
}

/**
 * Reads the one credential of a request.
 *
 * @param accept the kinds of `auth.accept`
 * @throws Refusal `unauthenticated`, `token_invalid` or `credentials_invalid`
 */
export function readCredential(
  headers: IncomingHttpHeaders,
  accept: readonly string[],
): Credential {
  const { authorization } = headers;
  if (accept.length === 1 && accept[0] === "bearer")
    return { token: readBearerToken(authorization) };
  if (authorization === undefined) {
    const name = tokenHeaders(accept).find((one) => headers[one] !== undefined);
    if (name !== undefined) return { token: requireTokenForm(String(headers[name])) };
    const message = `Missing credential; accepted: ${describeForms(accept)}`;
    throw new Refusal("unauthenticated", { message });
  }
  const [, scheme = "", value = ""] = /^([A-Za-z]+) +(.*)$/.exec(authorization) ?? [];
  const kind = scheme.toLowerCase();
  if (!accept.includes(kind)) {
    const message = `Invalid credential; accepted: ${describeForms(accept)}`;
    throw new Refusal("token_invalid", { message, detail: "scheme not accepted" });
  }
  return kind === "basic" ? readBasic(value) : { token: requireTokenForm(value) };
}

/**
 * The values of `WWW-Authenticate`, one for each kind of `auth.accept` (RFC 9110, section 11.6.1).
 *
 * @param bearer the parameters of the challenge for bearer tokens
 */
export function authenticateChallenges(accept: readonly string[], bearer: string): string[] {
  const challenges: Readonly<Record<string, string>> = {
    bearer: `Bearer ${bearer}`,
    // RFC 7617, sections 2 and 2.1.
    basic: 'Basic realm="gatehouse", charset="UTF-8"',
    apikey: "ApiKey",
  };
  return accept.map(
    (one) => challenges[one] ?? `Header realm="gatehouse", name="${one.slice("header:".length)}"`,
  );
}

const FINGERPRINT_BYTES = 8;

/**
 * The `cred` claim of valid tokens, a fingerprint of the salt. It changes with every new password,
 * reveals nothing about it, and is empty without one.
 */
export const passwordFingerprint = memoizeByObject((user: User): string => {
  const { salt = "" } = parsePasswordHash(user.passwordHash ?? "") ?? {};
  const digest = hash("sha256", salt, "buffer").subarray(0, FINGERPRINT_BYTES);
  return salt === "" ? "" : digest.toString("base64url");
});

/** The earliest issue time, in epoch seconds, of tokens that are still valid for this user. */
export function earliestIssue(
  revocations: Pick<Revocations, "earliestIssue">,
  { username, tokensValidAfter }: User,
): number {
  return Math.max(tokensValidAfter + 1, revocations.earliestIssue(username));
}

/** The caller of a request whose credential was accepted. */
export interface Authenticated {
  readonly subject: Subject;
  /** Empty for a caller without a token. */
  readonly tokenId: string;
  /** Epoch seconds. */
  readonly expiresAt: number;
  /** The client that the token was issued to, if the token names it. */
  readonly client?: string | undefined;
  /** How many groups of the token have no valid name. */
  readonly droppedGroups?: number;
  /**
   * Checks expiry, user and revocations again, in this snapshot.
   *
   * @throws Refusal with one of the 401 codes
   */
  identify(snapshot: Snapshot): User;
}

export interface ExternalToken {
  readonly issuer: string;
  readonly user: string;
  readonly tokenId: string;
  readonly client: string | undefined;
  /** Full names such as `staff:engineering`. Undefined if the issuer's groups are not used. */
  readonly groups: readonly string[] | undefined;
  /** How many groups have no valid name. */
  readonly droppedGroups: number;
  readonly ignoredGroups: readonly string[];
  /** Why the groups are unknown. */
  readonly groupsProblem: string | undefined;
  readonly attributes: Attributes | undefined;
  /** `sessionKey` and `subjectKey` (sign-in.ts). */
  readonly session: string;
  readonly subject: string;
  readonly scopes: ReadonlySet<string>;
  readonly issuedAt: number;
  /** Whole epoch seconds, with the allowed clock skew. */
  readonly expiresAt: number;
  /** False once its issuer has removed its key, or says that the token is no longer active. */
  readonly isKept?: () => boolean;
}

export interface ExternalIssuers {
  /** The result of the last key fetch, by issuer prefix. */
  readonly states: IssuerStates;
  /** A token that has been verified and is still good. */
  recall(token: string, door: Door): ExternalToken | undefined;
  /** @throws Refusal `token_invalid`, `token_expired` or `issuer_unreachable`, with its token */
  verify(token: string, door: Door): Promise<ExternalToken>;
}

const unverifiedIssuer = memoize((token: string): { readonly iss: string | undefined } => {
  try {
    return { iss: decodeJwt(token).iss ?? "" };
  } catch {
    return { iss: undefined };
  }
}, 1024);

/**
 * The unverified issuer claim, which only selects the verifier. Empty for a JWT without one, and
 * undefined for a token that is not a JWT.
 */
export function claimedIssuer(token: string): string | undefined {
  return unverifiedIssuer(token).iss;
}

/**
 * True for what claims to be a login token. Tokens of the embedded authorization server have another
 * type, and the same issuer if `auth.issuer` is the gateway's URL.
 */
export function claimsLogin(token: string, loginIssuer: string): boolean {
  if (claimedIssuer(token) !== loginIssuer) return false;
  try {
    return decodeProtectedHeader(token).typ !== "at+jwt";
  } catch {
    return true;
  }
}

interface NamedToken extends Pick<TokenClaims, "username" | "tokenId"> {
  readonly clientId?: string | undefined;
  /** Of an external token. */
  readonly issuer?: string;
}

/** The refusal of a verified token, which the audit names. */
export function refusedToken(code: RefusalCode, token: NamedToken, detail?: string): Refusal {
  const { username: user, tokenId, clientId: client, issuer } = token;
  const named = { user, tokenId, client, ...(issuer && { issuer }) };
  return new Refusal(code, { ...(detail && { detail }), token: named });
}

/** Checks user and revocations of a verified token. @throws Refusal `user_gone`, `token_revoked` */
export function identify(
  snapshot: Snapshot,
  revocations: Pick<Revocations, "isRevoked">,
  token: NamedToken & Pick<TokenClaims, "credential" | "issuedAt">,
): User {
  // Most callers have the credential of a password.
  const isSignIn = token.credential.startsWith("@");
  const signIn = isSignIn ? parseSignIn(token.credential) : undefined;
  const user = snapshot.users.get(token.username) ?? (signIn && blankUser(token.username));
  if (user === undefined) throw refusedToken("user_gone", token);
  const revoked = (detail: string) => refusedToken("token_revoked", token, detail);
  if (user.disabled) throw revoked("disabled");
  if (revocations.isRevoked(token)) throw revoked("revoked");
  if (token.issuedAt <= user.tokensValidAfter) throw revoked("tokens_valid_after");
  if (signIn !== undefined) {
    if (isSignInEnded(revocations, signIn, token)) throw revoked("signed_out");
  } else if (token.credential !== passwordFingerprint(user)) throw revoked("password_changed");
  return user;
}

/** The caller with a verified token of this gateway. @throws Refusal with one of the 401 codes */
export function tokenCaller(
  snapshot: Snapshot,
  revocations: Pick<Revocations, "isRevoked">,
  token: Omit<TokenClaims, "role"> & ValidToken,
): Authenticated {
  const { username, database: tokenDatabase, tokenId, expiresAt } = token;
  const identifyOwn = (current: Snapshot) => {
    requireValid(token);
    return identify(current, revocations, token);
  };
  identifyOwn(snapshot);
  return { subject: { username, tokenDatabase }, tokenId, expiresAt, identify: identifyOwn };
}

/**
 * The caller with an external token. The issuer knows its users, so they need no record here.
 *
 * @throws Refusal `token_revoked`, `groups_unavailable` or `no_grant`
 */
export function externalCaller(
  snapshot: Snapshot,
  revocations: Pick<Revocations, "isRevoked">,
  external: ExternalToken,
): Authenticated {
  const { user: username, tokenId, issuer, client, issuedAt, expiresAt } = external;
  const { groups, groupsProblem, attributes, droppedGroups } = external;
  const subject: Subject = {
    username,
    tokenDatabase: EVERY_DATABASE,
    ...(groups && { groups }),
    ...(attributes && { attributes }),
  };
  const token = { issuer, username, tokenId, clientId: client, expiresAt, isKept: external.isKept };
  const revoked = (detail: string) => refusedToken("token_revoked", token, detail);
  function identifyExternal(current: Snapshot): User {
    requireValid(token);
    const user = current.users.get(username) ?? blankUser(username);
    if (user.disabled) throw revoked("disabled");
    if (issuedAt <= user.tokensValidAfter) throw revoked("tokens_valid_after");
    if (revocations.isRevoked({ username, tokenId, issuedAt })) throw revoked("revoked");
    if (isLoggedOut(revocations, external, { username, issuedAt })) throw revoked("signed_out");
    if (groupsProblem !== undefined) {
      throw refusedToken("groups_unavailable", token, groupsProblem);
    }
    if (effectiveGrants(current, subject).size === 0) {
      throw refusedToken("no_grant", token, "no_grant");
    }
    return user;
  }
  identifyExternal(snapshot);
  return { subject, tokenId, expiresAt, client, droppedGroups, identify: identifyExternal };
}

/** The caller whose password was verified, until the user has another one or is disabled. */
export function passwordCaller(verified: User): Authenticated {
  const { username } = verified;
  // A login may raise the costs of the hash, and keeps its salt.
  const credential = passwordFingerprint(verified);
  return {
    subject: { username, tokenDatabase: EVERY_DATABASE },
    tokenId: "",
    expiresAt: Number.POSITIVE_INFINITY,
    identify({ users }) {
      const user = users.get(username);
      if (user === undefined || user.disabled || passwordFingerprint(user) !== credential) {
        throw new Refusal("credentials_invalid");
      }
      return user;
    },
  };
}

interface ValidToken extends NamedToken, Pick<TokenClaims, "expiresAt"> {
  /** False once its key was revoked, or its record was deleted. */
  readonly isKept?: (() => boolean) | undefined;
}

/** Checks a verified token again. @throws Refusal `token_expired` or `token_invalid` */
export function requireValid(token: ValidToken): void {
  if (token.expiresAt <= epochSeconds()) throw refusedToken("token_expired", token);
  if (token.isKept?.() === false) throw refusedToken("token_invalid", token, "no longer known");
}
