import { createHash, randomBytes, randomUUID } from "node:crypto";
import type { Snapshot, User } from "../access/snapshot.ts";
import { epochSeconds } from "../clock.ts";
import { credentialOf, identify } from "../identity/authenticate.ts";
import type { Revocations } from "../identity/revocations.ts";
import { Refusal } from "../refusal.ts";

/** Milliseconds without a request after which a session ends. */
export const IDLE_MS = 30 * 60_000;
/** Milliseconds after which a session ends, however it is used. */
export const LONGEST_MS = 12 * 3_600_000;
/** Sessions of one user; past it the one that was not used for the longest time ends. */
const PER_USER = 20;

/** Where a browser is, as its user may recognise it; both are what the browser says. */
export interface BrowserPlace {
  readonly address: string;
  readonly userAgent: string;
}

/** A browser that somebody is signed in with. Times of issue in epoch seconds. */
export interface Session extends BrowserPlace {
  /** Names it on pages; opens nothing. */
  readonly tokenId: string;
  readonly username: string;
  /** The fingerprint of the password that was given. */
  readonly credential: string;
  readonly issuedAt: number;
  /** Milliseconds of the sessions' clock. */
  readonly startedAt: number;
  readonly usedAt: number;
}

/** Where users are looked up. */
export interface SessionContext {
  readonly snapshot: () => Snapshot;
  readonly revocations: Pick<Revocations, "isRevoked" | "earliestIssue">;
}

function digest(secret: string): string {
  return createHash("sha256").update(secret).digest("base64url");
}

/**
 * The sessions of the console, in memory: a restart ends all of them. Each is held under the hash of
 * its secret, and held against the access file and the revocations whenever it is used.
 */
export class Sessions {
  readonly #context: SessionContext;
  readonly #now: () => number;
  readonly #held = new Map<string, Session>();

  /** @param now milliseconds of a clock that is never set */
  constructor(context: SessionContext, now: () => number = () => performance.now()) {
    this.#context = context;
    this.#now = now;
  }

  /** Signs a user in. @returns the secret that the browser keeps */
  open(user: User, { address, userAgent }: BrowserPlace): string {
    const secret = randomBytes(32).toString("base64url");
    const now = this.#now();
    const earliest = this.#context.revocations.earliestIssue(user.username);
    this.#makeRoom(user.username);
    this.#held.set(digest(secret), {
      address,
      userAgent,
      tokenId: randomUUID(),
      username: user.username,
      credential: credentialOf(user),
      // As for tokens: what was revoked up to some second leaves what comes after it alone.
      issuedAt: Math.max(epochSeconds(), user.tokensValidAfter + 1, earliest),
      startedAt: now,
      usedAt: now,
    });
    return secret;
  }

  /** The session of a browser; undefined if it has none, or one that has ended. Counts as use. */
  use(secret: string): Session | undefined {
    const key = digest(secret);
    const session = this.#held.get(key);
    if (session === undefined || !this.#isGood(key, session)) return undefined;
    const used = { ...session, usedAt: this.#now() };
    this.#held.set(key, used);
    return used;
  }

  /** Those of a user, or all, the last used first. */
  list(username?: string): Session[] {
    return Array.from(this.#held)
      .filter(([key, session]) => {
        const isMeant = username === undefined || session.username === username;
        return isMeant && this.#isGood(key, session);
      })
      .map(([, session]) => session)
      .sort((one, other) => other.usedAt - one.usedAt);
  }

  /** Ends those that are meant. */
  end(isMeant: (session: Session) => boolean): void {
    for (const [key, session] of this.#held) if (isMeant(session)) this.#held.delete(key);
  }

  /** Milliseconds until a session ends by itself. */
  msLeft({ startedAt, usedAt }: Session): number {
    return Math.min(startedAt + LONGEST_MS, usedAt + IDLE_MS) - this.#now();
  }

  /** Epoch seconds of a moment of the sessions' clock. */
  epochOf(moment: number): number {
    return epochSeconds() - Math.round((this.#now() - moment) / 1000);
  }

  #isGood(key: string, session: Session): boolean {
    const isAlive = this.msLeft(session) > 0 && this.#isIdentified(session);
    if (!isAlive) this.#held.delete(key);
    return isAlive;
  }

  #isIdentified(session: Session): boolean {
    try {
      identify(this.#context.snapshot(), this.#context.revocations, session);
      return true;
    } catch (error) {
      if (error instanceof Refusal) return false;
      throw error;
    }
  }

  #makeRoom(username: string): void {
    const oldest = this.list(username).slice(PER_USER - 1);
    this.end(({ tokenId }) => oldest.some((session) => session.tokenId === tokenId));
  }
}
