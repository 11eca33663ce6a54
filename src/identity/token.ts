import { type KeyObject, randomUUID } from "node:crypto";
import { SignJWT } from "jose/jwt/sign";
import { entriesIn } from "../access/entries.ts";
import { isDatabaseOrEvery, isExternalUsername, isUsername } from "../access/identifiers.ts";
import { decide } from "../access/policy.ts";
import { EVERY_DATABASE, isRole, type Role, widestRole } from "../access/roles.ts";
import { grantsOf, type Snapshot } from "../access/snapshot.ts";
import { epochSeconds } from "../clock.ts";
import type { TokenMetrics } from "../observe/component-metrics.ts";
import { Refusal } from "../refusal.ts";
import {
  invalidToken,
  isSeconds,
  type JsonObject,
  type Pin,
  verifyPinned,
} from "./jwt-verification.ts";
import type { KeyRing } from "./key-ring.ts";

/** Tokens of one bucket, at most. */
const BUCKET_SIZE = 8;

interface Entry<T> {
  readonly token: string;
  /** Compared first: tokens of one gateway begin alike. */
  readonly hash: number;
  readonly value: T;
}

/**
 * What is known of a bounded number of tokens: an LRU cache. It is asked with every request, by a
 * text that is new each time: a map would first look such a text up in the table of all strings.
 *
 * A token's bucket comes of the end of its signature, where no two are alike but by chance; in a
 * bucket, those used last come first, and the last one makes room.
 */
class RecentTokens<T> {
  /** Of eight tokens each; one that was never used is undefined. */
  readonly #buckets: (Entry<T>[] | undefined)[];
  readonly #isGood: (value: T) => boolean;

  constructor(buckets: number, isGood: (value: T) => boolean) {
    this.#buckets = new Array(buckets).fill(undefined);
    this.#isGood = isGood;
  }

  /** How many tokens are known. */
  get size(): number {
    return this.#buckets.reduce((sum, bucket) => sum + (bucket?.length ?? 0), 0);
  }

  get(token: string): T | undefined {
    const hash = hashOf(token);
    const bucket = this.#buckets[this.#placeOf(hash)] ?? [];
    for (let at = 0; at < bucket.length; at++) {
      const entry = bucket[at];
      if (entry?.hash !== hash || entry.token !== token) continue;
      if (at > 0) moveToFront(bucket, at);
      return entry.value;
    }
    return undefined;
  }

  /** Takes a token in that is not known, in the place of those that are good no more. */
  add(token: string, value: T): void {
    const hash = hashOf(token);
    const place = this.#placeOf(hash);
    const others = (this.#buckets[place] ?? []).filter(({ value }) => this.#isGood(value));
    this.#buckets[place] = [{ token, hash, value }, ...others.slice(0, BUCKET_SIZE - 1)];
  }

  delete(token: string): void {
    const place = this.#placeOf(hashOf(token));
    this.#buckets[place] = this.#buckets[place]?.filter((entry) => entry.token !== token);
  }

  #placeOf(hash: number): number {
    return hash % this.#buckets.length;
  }
}

/** Of the end of the signature; its very last character may hold as little as two bits. */
function hashOf(token: string): number {
  const end = token.length - 1;
  let hash = 0;
  for (let at = end - 3; at < end; at++) hash = hash * 97 + (token.charCodeAt(at) || 0);
  return hash;
}

function moveToFront<T>(list: T[], at: number): void {
  const [moved] = list.splice(at, 1);
  if (moved !== undefined) list.unshift(moved);
}

/**
 * Buckets of the tokens that are remembered: 262,144 at most, of some 650 bytes each. With 100,000 in turn, two of a
 * hundred meet a bucket that is full.
 */
const BUCKETS = 32_768;

interface Remembered<T> {
  readonly content: T;
  readonly kid: string;
  readonly key: KeyObject;
  readonly notBefore: number;
  readonly expiresAt: number;
}

/**
 * Verifies tokens, and remembers those that were good, whole, so that one that is shown again costs
 * no signature. What is remembered is no more than what the token says: whether it was revoked and
 * what has become of its user is for the caller to judge each time.
 *
 * A remembered token counts while its key is the one that verifies its `kid` and its time has not
 * passed; after that it is verified anew, and refused as any other. What was refused is not
 * remembered, so no flood of bad tokens drives out a good one.
 */
export class VerifiedTokens<T extends object> {
  readonly #pin: Pin;
  readonly #read: (claims: JsonObject) => T;
  readonly #recent: RecentTokens<Remembered<T>>;
  readonly #metrics = { remembered: 0, verified: 0, refused: 0 };

  /**
   * @param read makes sense of the claims, or throws a Refusal
   * @param buckets of eight tokens each that are remembered
   */
  constructor(pin: Pin, read: (claims: JsonObject) => T, buckets = BUCKETS) {
    this.#pin = pin;
    this.#read = read;
    this.#recent = new RecentTokens(buckets, (known) => this.#isGood(known));
  }

  /** What has become of the tokens that were shown. */
  get metrics(): TokenMetrics {
    return this.#metrics;
  }

  /** The number of tokens that are remembered. */
  get size(): number {
    return this.#recent.size;
  }

  /**
   * What the token says.
   *
   * @throws Refusal `token_expired` or `token_invalid`
   */
  verify(token: string): T {
    return this.recall(token) ?? this.#verifyAnew(token);
  }

  /** What the token says, if it is remembered and still good. */
  recall(token: string): T | undefined {
    const known = this.#recent.get(token);
    if (known === undefined) return undefined;
    if (this.#isGood(known)) {
      this.#metrics.remembered++;
      return known.content;
    }
    this.#recent.delete(token);
    return undefined;
  }

  #verifyAnew(token: string): T {
    try {
      const { claims, kid, key, notBefore, expiresAt } = verifyPinned(this.#pin, token);
      const content = this.#read(claims);
      this.#recent.add(token, { content, kid, key, notBefore, expiresAt });
      this.#metrics.verified++;
      return content;
    } catch (error) {
      this.#metrics.refused++;
      throw error;
    }
  }

  #isGood({ kid, key, notBefore, expiresAt }: Remembered<T>): boolean {
    const now = epochSeconds();
    return notBefore <= now && now < expiresAt && this.#pin.verifier(kid) === key;
  }
}

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
