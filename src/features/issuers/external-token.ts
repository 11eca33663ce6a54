import { hash } from "node:crypto";
import type { JWTPayload } from "jose";
import * as z from "zod";
import { type Attributes, readAttributes } from "../../core/access/grant.ts";
import { isExternalGroup, isExternalUsername } from "../../core/access/roles.ts";
import { epochSeconds } from "../../core/base/clock.ts";
import { Refusal } from "../../core/base/refusal.ts";
import { type IssuerSettings, LONGEST_TOKEN_SECONDS } from "../../core/config/schema.ts";
import { claimedIssuer, type ExternalToken } from "../../core/identity/authenticate.ts";
import { invalidToken } from "../../core/identity/jwt-verification.ts";
import { tokenIdPattern } from "../../core/identity/revocations.ts";
import {
  isSubjectName,
  SESSION_TOKEN_SECONDS,
  sessionKey,
  subjectKey,
  subjectRevocation,
} from "../../core/identity/sign-in.ts";

const CLOCK_AHEAD_SECONDS = 60;
/** Clock skew allowed for `nbf` and `exp` (RFC 7519, section 4.1). */
export const CLOCK_SKEW_SECONDS = 30;
const MAX_GROUPS = 1000;

function usernameProblem(payload: JWTPayload, settings: IssuerSettings) {
  const { username_claim: claim, prefix } = settings;
  const value = Object.hasOwn(payload, claim) ? payload[claim] : undefined;
  if (value === undefined) return "no_username";
  if (claim === "email" && payload.email_verified !== true) return "email_not_verified";
  // An invalid name is refused, never normalized: two names must not become one.
  const isText = typeof value === "string" && !isSubjectName(value);
  const isName = isText && isExternalUsername(`${prefix}:${value}`);
  return isName ? undefined : "bad_username";
}

/** The audit fields of a token, valid or not. */
export function describeToken(token: string, payload: JWTPayload, settings: IssuerSettings) {
  const { issuer, prefix, username_claim: claim } = settings;
  const { jti } = payload;
  const client = payload.client_id ?? payload.azp;
  // A JWT without its signature, which has several encodings.
  const isOpaque = claimedIssuer(token) === undefined;
  const digest = hash("sha256", isOpaque ? token : token.slice(0, token.lastIndexOf(".")));
  return {
    issuer,
    user:
      usernameProblem(payload, settings) === undefined ? `${prefix}:${payload[claim]}` : undefined,
    tokenId: typeof jti === "string" && tokenIdPattern.test(jti) ? jti : digest,
    client: typeof client === "string" ? client : undefined,
  };
}

/** Servers send a string (RFC 9068) or a list, and some name the claim `scp`. */
function readScopes({ scope, scp }: JWTPayload, byDefault: readonly string[]): ReadonlySet<string> {
  const claim = scope === undefined ? scp : scope;
  if (claim === undefined) return new Set(byDefault);
  const scopes: unknown = typeof claim === "string" ? claim.split(" ") : claim;
  if (!Array.isArray(scopes)) throw invalidToken("bad_scope");
  return new Set(scopes.filter((one) => typeof one === "string" && one !== ""));
}

/** The value of a claim by its name, or by the path to it. Null if the path leads into no object. */
function claimAt(payload: JWTPayload, path: readonly string[]): unknown {
  return path.reduce<unknown>((value, name) => {
    if (typeof value !== "object" || value === null) return value === undefined ? undefined : null;
    return Object.hasOwn(value, name) ? Reflect.get(value, name) : undefined;
  }, payload);
}

type GroupsProblem = "groups_missing" | "groups_malformed" | "groups_too_many" | "groups_overage";

export type Groups = ReturnType<typeof readGroups>;

/** Full names such as `staff:engineering`, sorted, apart from those that are not valid. */
export function readGroups(payload: JWTPayload, settings: IssuerSettings) {
  const { groups_claim: claim, groups_claim_optional: isOptional, prefix } = settings;
  const none = { groups: undefined, droppedGroups: 0, ignoredGroups: [], groupsProblem: undefined };
  if (claim === undefined) return none;
  const unknown = (groupsProblem: GroupsProblem) => ({ ...none, groupsProblem });
  // Entra leaves the groups of users in many groups out, and says so.
  if (payload._claim_names !== undefined || payload.hasgroups !== undefined) {
    return unknown("groups_overage");
  }
  const value = claimAt(payload, typeof claim === "string" ? claim.split(".") : claim);
  if (value === undefined) return isOptional ? { ...none, groups: [] } : unknown("groups_missing");
  const names: unknown = typeof value === "string" ? [value] : value;
  const isList = Array.isArray(names) && names.every((name) => typeof name === "string");
  if (!isList) return unknown("groups_malformed");
  if (names.length > MAX_GROUPS) return unknown("groups_too_many");
  const all = names.map((name) => `${prefix}:${name}`);
  // An issuer may name the same groups in another order.
  const groups = [...new Set(all.filter(isExternalGroup))].sort();
  const ignoredGroups = names.filter((_, at) => !isExternalGroup(all[at]));
  return { groups, droppedGroups: ignoredGroups.length, ignoredGroups, groupsProblem: undefined };
}

/** Leaves out what filters cannot compare with, so that they deny instead. Sorts lists. */
function readAttributeClaims(
  payload: JWTPayload,
  settings: IssuerSettings,
): Attributes | undefined {
  const claims = Object.entries(settings.attribute_claims);
  if (claims.length === 0) return undefined;
  const attributes = claims.flatMap(([name, claim]) => [
    ...(readAttributes({ [name]: claimAt(payload, [claim]) }) ?? []),
  ]);
  return new Map(
    attributes.map(([name, value]) => [name, typeof value === "object" ? value.toSorted() : value]),
  );
}

function requireClaims(payload: JWTPayload, { required_claims: required }: IssuerSettings): void {
  for (const [claim, wanted] of Object.entries(required)) {
    const allowed: readonly unknown[] = [wanted].flat();
    const found = [claimAt(payload, [claim])].flat();
    // Texts of several scopes (RFC 8693, section 4.2; `scp` at Entra ID).
    const isScope = claim === "scope" || claim === "scp";
    const words = isScope && typeof found[0] === "string" ? found[0].split(" ") : [];
    if (![...found, ...words].some((one) => allowed.includes(one))) {
      throw invalidToken("claim_mismatch");
    }
  }
}

/**
 * The user whom verified claims name.
 *
 * @throws Refusal `token_invalid` if the name is not valid, or a required claim differs
 */
export function readIdentity(payload: JWTPayload, settings: IssuerSettings) {
  const problem = usernameProblem(payload, settings);
  if (problem !== undefined) throw invalidToken(problem);
  requireClaims(payload, settings);
  const user = `${settings.prefix}:${payload[settings.username_claim]}`;
  return { user, attributes: readAttributeClaims(payload, settings) };
}

const otherKinds = /^(?:id|refresh|offline|logout)(?:_token)?$/i;

/** Claims that access tokens have (RFC 9068, section 2.2), those of Entra too, and ID tokens lack. */
const accessClaims = ["client_id", "scope", "scp", "azpacr"];

/**
 * True for a token of the audience that ID tokens of a sign-in have, which could be one: after a
 * refresh they lack the claims by which others are recognized.
 */
function mayBeIdToken(payload: JWTPayload, { login }: IssuerSettings): boolean {
  if (login === undefined || ![payload.aud].flat().includes(login.client_id)) return false;
  return payload.typ !== "Bearer" && accessClaims.every((claim) => payload[claim] === undefined);
}

/**
 * Claims of ID tokens (OpenID Connect Core, section 2), and the names that Keycloak (`typ`), Cognito
 * and Hydra (`token_use`) and others (`token_type`) give to the kinds of their tokens.
 */
export function isOtherKind(payload: JWTPayload, settings: IssuerSettings): boolean {
  const { typ, token_use: use, token_type: type, ...claims } = payload;
  if (mayBeIdToken(payload, settings)) return true;
  if ([typ, use, type].some((kind) => typeof kind === "string" && otherKinds.test(kind)))
    return true;
  const ofIdTokens = ["nonce", "at_hash", "c_hash", "s_hash", "events"];
  return typ !== "Bearer" && ofIdTokens.some((claim) => claims[claim] !== undefined);
}

/** Reads an authentic token. @throws Refusal `token_invalid` */
export function readExternalToken(
  token: string,
  payload: JWTPayload,
  settings: IssuerSettings,
): ExternalToken {
  const { exp, iat, cnf } = payload;
  // A bearer request cannot prove possession of the key (RFC 9449, RFC 8705).
  if (cnf !== undefined) throw invalidToken("bound_to_key");
  if (exp === undefined) throw invalidToken("no_expiry");
  // Without an issue time, or with one in the future, the token would survive every revocation.
  if (iat === undefined) throw invalidToken("no_issue_time");
  if (iat > epochSeconds() + CLOCK_AHEAD_SECONDS) throw invalidToken("issued_in_future");
  const { prefix, username_claim: usernameClaim } = settings;
  const session = sessionKey(prefix, payload.sid);
  // Revocations are kept that long. `exp` need not be a whole number (RFC 7519, section 2).
  const longest = session === "" ? LONGEST_TOKEN_SECONDS : SESSION_TOKEN_SECONDS;
  const expiresAt = Math.ceil(Math.min(exp + CLOCK_SKEW_SECONDS, iat + longest));
  if (expiresAt <= epochSeconds()) throw new Refusal("token_expired", { detail: "expired" });
  return {
    ...describeToken(token, payload, settings),
    ...readIdentity(payload, settings),
    ...readGroups(payload, settings),
    session,
    subject: subjectKey(prefix, usernameClaim, payload.sub),
    scopes: readScopes(payload, settings.default_scopes),
    issuedAt: iat,
    expiresAt,
  };
}

const LOGOUT_EVENT = "http://schemas.openid.net/event/backchannel-logout";
const name = z.string().min(1);
const logoutShape = z
  .object({
    jti: name,
    iat: z.number().nonnegative(),
    exp: z.number(),
    sub: name.optional(),
    sid: name.optional(),
    nonce: z.never().optional(),
    events: z.object({ [LOGOUT_EVENT]: z.object({}) }),
  })
  .refine(({ sub, sid }) => sub !== undefined || sid !== undefined, { path: ["sub"] });

export type Logout = ReturnType<typeof readLogout>;

/**
 * Reads an authentic logout token (OpenID Connect Back-Channel Logout, section 2.6).
 *
 * @throws Refusal `token_invalid`
 */
export function readLogout(
  payload: JWTPayload,
  { prefix, username_claim: usernameClaim }: IssuerSettings,
) {
  const { data, error } = logoutShape.safeParse(payload);
  if (data === undefined) {
    const claim = error.issues[0]?.path[0];
    const isOther = claim === "events" || claim === "nonce";
    throw invalidToken(isOther ? "wrong_type" : "bad_claim");
  }
  const { jti, iat, exp, sub, sid } = data;
  const now = epochSeconds();
  if (iat > now + CLOCK_AHEAD_SECONDS) throw invalidToken("issued_in_future");
  // The id is remembered until then.
  if (exp > now + LONGEST_TOKEN_SECONDS) throw invalidToken("bad_claim");
  const user = `${prefix}:${sub}`;
  const all = subjectRevocation(user, subjectKey(prefix, usernameClaim, sub));
  const isUsername = usernameClaim === "sub" && sub !== undefined && isExternalUsername(user);
  return {
    id: `${prefix} ${jti}`,
    issuedAt: Math.floor(iat),
    expiresAt: Math.ceil(exp) + CLOCK_SKEW_SECONDS,
    /** Empty: everything of the user ends. */
    session: sessionKey(prefix, sid),
    /** The name under which it is revoked. Undefined if no user has this `sub`. */
    subject: sub !== undefined && isExternalUsername(all) ? all : undefined,
    /** Undefined if another claim names users. */
    user: isUsername ? user : undefined,
  };
}
