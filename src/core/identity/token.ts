import { hash, randomBytes, randomUUID } from "node:crypto";
import { SignJWT } from "jose/jwt/sign";
import { LRUCache } from "lru-cache";
import { decide, roleInForce } from "../access/policy.ts";
import {
  EVERY_DATABASE,
  isAnyUsername,
  isDatabaseOrEvery,
  isRole,
  type Role,
} from "../access/roles.ts";
import type { Snapshot } from "../access/snapshot.ts";
import { epochSeconds } from "../base/clock.ts";
import { Refusal } from "../base/refusal.ts";
import type { JsonObject } from "../json/exact.ts";
import { invalidToken, isSeconds, type Pin, verifyPinned } from "./jwt-verification.ts";
import type { KeyRing } from "./key-store.ts";

/** At about 650 bytes each. */
const MAX_CACHED_TOKENS = 100_000;

interface CachedToken<T> extends Omit<ReturnType<typeof verifyPinned>, "claims"> {
  readonly content: T;
}

type TokenMetrics = Record<"remembered" | "verified" | "refused", number>;

interface Verified {
  /** False once its key was revoked, or its record was deleted. */
  isKept(): boolean;
}

/**
 * Verifies tokens, and caches the content of valid ones while their keys verify. The caller must
 * check revocations and the user every time. Refused tokens cannot evict valid ones.
 */
export class VerifiedTokens<T extends object> {
  readonly #pin: Pin;
  readonly #read: (claims: JsonObject) => T;
  readonly #recent: LRUCache<string, CachedToken<T & Verified>>;
  readonly metrics: TokenMetrics = { remembered: 0, verified: 0, refused: 0 };

  constructor(pin: Pin, read: (claims: JsonObject) => T, max = MAX_CACHED_TOKENS) {
    this.#pin = pin;
    this.#read = read;
    this.#recent = new LRUCache({ max });
  }

  get size(): number {
    return this.#recent.size;
  }

  /** The content of a token that has been verified and is still good. */
  recall(token: string): (T & Verified) | undefined {
    const known = this.#recent.get(token);
    if (known === undefined || !this.#isGood(known)) return undefined;
    this.metrics.remembered++;
    return known.content;
  }

  /** @throws Refusal `token_expired` or `token_invalid` */
  verify(token: string): T & Verified {
    const known = this.recall(token);
    if (known !== undefined) return known;
    this.#recent.delete(token);
    try {
      const { claims, ...pinned } = verifyPinned(this.#pin, token);
      // Another key may have the id by now.
      const isKept = () => {
        const known = this.#pin.verifier(pinned.kid);
        return known === pinned.key || known?.equals(pinned.key) === true;
      };
      const content = { ...this.#read(claims), isKept };
      this.#recent.set(token, { content, ...pinned });
      this.metrics.verified++;
      return content;
    } catch (error) {
      this.metrics.refused++;
      throw error;
    }
  }

  #isGood({ kid, key, notBefore, expiresAt }: CachedToken<T & Verified>): boolean {
    const now = epochSeconds();
    return notBefore <= now && now < expiresAt && this.#pin.verifier(kid) === key;
  }
}

const LOGIN_AUDIENCE = "gatehouse";
const TYPE = "JWT";
/** Login tokens are well under 1 KiB. */
const MAX_TOKEN_LENGTH = 4096;

/** Claims of a login token (RFC 7519). Times are epoch seconds. */
export interface TokenClaims {
  readonly username: string;
  readonly database: string;
  /** Only informs the client. Authorization uses the access file. */
  readonly role: Role | undefined;
  readonly credential: string;
  readonly tokenId: string;
  readonly issuedAt: number;
  readonly expiresAt: number;
}

export type TokenRequest = Pick<TokenClaims, "username" | "database" | "role" | "credential"> & {
  /** Seconds, or the moment of expiry. */
  readonly lifetime: number | Date;
  /** The earliest `iat`, so that the token survives a revocation made in the same second. */
  readonly notBefore: number;
};

function readClaims({ sub, database, role, cred, jti, iat, exp }: JsonObject): TokenClaims {
  if (!isAnyUsername(sub)) throw invalidToken("claim sub");
  if (!isDatabaseOrEvery(database)) throw invalidToken("claim database");
  if (role !== undefined && !isRole(role)) throw invalidToken("claim role");
  if (typeof cred !== "string") throw invalidToken("claim cred");
  if (typeof jti !== "string" || jti === "") throw invalidToken("claim jti");
  if (!isSeconds(iat) || !isSeconds(exp)) throw invalidToken("claim iat or exp");
  const times = { issuedAt: iat, expiresAt: exp };
  return { username: sub, database, role, credential: cred, tokenId: jti, ...times };
}

/** When a token that is issued now expires, even if it may be used only later. */
function expiryTime(lifetime: TokenRequest["lifetime"]): number {
  return lifetime instanceof Date
    ? Math.ceil(lifetime.getTime() / 1000)
    : epochSeconds() + lifetime;
}

/** Issues and verifies login tokens. Calls `ring` every time, so that keys can rotate. */
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
    async issue({ lifetime, notBefore, ...subject }: TokenRequest) {
      const { algorithm, signer } = ring();
      const issuedAt = Math.max(epochSeconds(), notBefore);
      const expiresAt = expiryTime(lifetime);
      const claims: TokenClaims = { ...subject, tokenId: randomUUID(), issuedAt, expiresAt };
      const { database, role, credential: cred } = subject;
      const token = await new SignJWT({ database, cred, ...(role && { role }) })
        .setProtectedHeader({ alg: algorithm, kid: signer.kid, typ: TYPE })
        .setSubject(claims.username)
        .setIssuer(issuer)
        .setAudience(LOGIN_AUDIENCE)
        .setJti(claims.tokenId)
        .setIssuedAt(issuedAt)
        .setExpirationTime(expiresAt)
        .sign(signer.key);
      return { token, claims, kid: signer.kid };
    },
    recall: (token: string) => verified.recall(token),
    /** @throws Refusal `token_expired` or `token_invalid` */
    verify: (token: string) => verified.verify(token),
    metrics: verified.metrics,
  };
}

export type TokenAuthority = ReturnType<typeof createTokenAuthority>;

/** The widest role on the database, or anywhere for `*`. @throws Refusal without one on it */
export function tokenRole(snapshot: Snapshot, username: string, database: string) {
  const role = roleInForce(snapshot, { username }, database);
  if (database === EVERY_DATABASE) return role;
  // Every role may read, so this checks for any role.
  const { reason } = decide(snapshot, { username, tokenDatabase: database }, "SELECT", database);
  const isRefused = role === undefined || reason === "database_case_mismatch";
  if (isRefused && reason !== "allowed") throw new Refusal(reason);
  return role;
}

/**
 * A token that a command issued, as the inventory keeps it. An opaque token is accepted only because
 * the inventory has it; a JWT is only listed.
 */
export interface IssuedToken extends Omit<TokenClaims, "role"> {
  readonly name?: string | undefined;
  /** SHA-256 in base64url. Absent for a JWT. */
  readonly digest?: string | undefined;
  /** The key that signed a JWT. */
  readonly kid?: string | undefined;
}

/** Random tokens need no salt, and a lookup by digest takes the same time for every wrong token. */
function tokenDigest(token: string): string {
  return hash("sha256", token, "base64url");
}

export function createOpaqueToken({ lifetime, notBefore, ...subject }: Omit<TokenRequest, "role">) {
  const token = `gh_${randomBytes(32).toString("base64url")}`;
  const issuedAt = Math.max(epochSeconds(), notBefore);
  const issued: IssuedToken = {
    ...subject,
    tokenId: randomUUID(),
    issuedAt,
    expiresAt: expiryTime(lifetime),
    digest: tokenDigest(token),
  };
  return { token, issued };
}

export class TokenIndex {
  readonly #byId = new Map<string, IssuedToken>();
  readonly #byDigest = new Map<string, IssuedToken>();

  constructor(tokens: Iterable<IssuedToken> = []) {
    for (const token of tokens) this.add(token);
  }

  add(token: IssuedToken): void {
    this.#byId.set(token.tokenId, token);
    if (token.digest !== undefined) this.#byDigest.set(token.digest, token);
  }

  find(token: string): IssuedToken | undefined {
    return this.#byDigest.get(tokenDigest(token));
  }

  get(tokenId: string): IssuedToken | undefined {
    return this.#byId.get(tokenId);
  }

  all(): Iterable<IssuedToken> {
    return this.#byId.values();
  }
}

export interface LiveTokenInventory {
  /** A change may replace it. */
  readonly index: TokenIndex;
  /** @throws Refusal `store_unreachable` if tokens may be missing here */
  requireFresh?(): void;
  /** Resolves when the stored tokens are known. */
  reload(): Promise<void>;
  close(): Promise<void>;
}

type KeptToken = IssuedToken & Verified;

/**
 * The record of an opaque token. Waits only for one that this process does not know.
 *
 * @throws Refusal `token_invalid`
 */
export function findIssued(
  inventory: LiveTokenInventory,
  metrics: TokenMetrics,
  token: string,
): KeptToken | Promise<KeptToken> {
  const kept = (record: IssuedToken): KeptToken => ({
    ...record,
    isKept: () => inventory.index.get(record.tokenId) !== undefined,
  });
  inventory.requireFresh?.();
  const known = inventory.index.find(token);
  if (known !== undefined) {
    metrics.remembered++;
    return kept(known);
  }
  return inventory.reload().then(() => {
    const found = inventory.index.find(token);
    metrics[found === undefined ? "refused" : "verified"]++;
    if (found === undefined) throw new Refusal("token_invalid", { detail: "unknown opaque token" });
    return kept(found);
  });
}
