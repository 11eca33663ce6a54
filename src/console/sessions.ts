import { createHash, randomBytes, randomUUID } from "node:crypto";
import type { Snapshot, User } from "../access/snapshot.ts";
import { epochSeconds } from "../clock.ts";
import { credentialOf, earliestIssue, identify } from "../identity/authenticate.ts";
import type { Revocations } from "../identity/revocations.ts";
import { Refusal } from "../refusal.ts";

/** Milliseconds without a request after which a session ends. */
export const IDLE_MS = 30 * 60_000;
/** Milliseconds after which a session ends, however it is used. */
export const LONGEST_MS = 12 * 3_600_000;
/** Sessions of one user; past it the one that was not used for the longest time ends. */
const PER_USER = 20;

/** Where a browser is, as its user may recognise it; both are what the browser says. */
interface BrowserPlace {
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

/** Sessions by the hashes of their secrets, wherever they are held. */
export interface HeldSessions {
  add(key: string, session: Session): Promise<void>;
  /**
   * One whose time is not over; its times are of this process's clock.
   *
   * @param isPassive true for a page that refreshes itself, which does not count as use
   */
  use(key: string, isPassive: boolean): Promise<Session | undefined>;
  /** Those of a user, or all, whose time is not over. */
  list(username: string | undefined): Promise<readonly Session[]>;
  end(tokenId: string): Promise<void>;
}

function msLeft({ startedAt, usedAt }: Session, now: number): number {
  return Math.min(startedAt + LONGEST_MS, usedAt + IDLE_MS) - now;
}

/** Sessions in memory: a restart ends all of them. */
class SessionsInMemory implements HeldSessions {
  readonly #now: () => number;
  readonly #held = new Map<string, Session>();

  constructor(now: () => number) {
    this.#now = now;
  }

  async add(key: string, session: Session): Promise<void> {
    this.#held.set(key, session);
  }

  async use(key: string, isPassive: boolean): Promise<Session | undefined> {
    this.#dropOld();
    const session = this.#held.get(key);
    if (session === undefined || isPassive) return session;
    const used = { ...session, usedAt: this.#now() };
    this.#held.set(key, used);
    return used;
  }

  async list(username: string | undefined): Promise<readonly Session[]> {
    this.#dropOld();
    const all = this.#held.values();
    return [...all.filter((one) => username === undefined || one.username === username)];
  }

  async end(tokenId: string): Promise<void> {
    this.#drop((session) => session.tokenId === tokenId);
  }

  #dropOld(): void {
    this.#drop((session) => msLeft(session, this.#now()) <= 0);
  }

  #drop(isMeant: (session: Session) => boolean): void {
    for (const [key, session] of this.#held) if (isMeant(session)) this.#held.delete(key);
  }
}

/** Where users are looked up. */
interface SessionContext {
  readonly snapshot: () => Snapshot;
  readonly revocations: Pick<Revocations, "isRevoked" | "earliestIssue">;
}

function digest(secret: string): string {
  return createHash("sha256").update(secret).digest("base64url");
}

/**
 * The sessions of the console. Each is held under the hash of its secret, and held against the
 * access rules and the revocations whenever it is used.
 */
export class Sessions {
  readonly #context: SessionContext;
  readonly #now: () => number;
  readonly #held: HeldSessions;

  /** @param now milliseconds of a clock that is never set */
  constructor(
    context: SessionContext,
    now: () => number = () => performance.now(),
    held: HeldSessions = new SessionsInMemory(now),
  ) {
    this.#context = context;
    this.#now = now;
    this.#held = held;
  }

  /** Signs a user in. @returns the secret that the browser keeps */
  async open(user: User, { address, userAgent }: BrowserPlace): Promise<string> {
    const secret = randomBytes(32).toString("base64url");
    const now = this.#now();
    await this.#held.add(digest(secret), {
      address,
      userAgent,
      tokenId: randomUUID(),
      username: user.username,
      credential: credentialOf(user),
      // As for tokens: what was revoked up to some second leaves what comes after it alone.
      issuedAt: Math.max(epochSeconds(), earliestIssue(this.#context.revocations, user)),
      startedAt: now,
      usedAt: now,
    });
    const tooMany = (await this.list(user.username)).slice(PER_USER);
    for (const { tokenId } of tooMany) await this.end(tokenId);
    return secret;
  }

  /** The session of a browser; undefined if it has none, or one that has ended. */
  async use(secret: string, isPassive = false): Promise<Session | undefined> {
    const session = await this.#held.use(digest(secret), isPassive);
    return session !== undefined && (await this.#isGood(session)) ? session : undefined;
  }

  /** Those of a user, or all, the last used first. */
  async list(username?: string): Promise<Session[]> {
    const good: Session[] = [];
    for (const session of await this.#held.list(username)) {
      if (await this.#isGood(session)) good.push(session);
    }
    return good.sort((one, other) => other.usedAt - one.usedAt);
  }

  end(tokenId: string): Promise<void> {
    return this.#held.end(tokenId);
  }

  /** Milliseconds until a session ends by itself. */
  msLeft(session: Session): number {
    return msLeft(session, this.#now());
  }

  /** Epoch seconds of a moment of the sessions' clock. */
  epochOf(moment: number): number {
    return epochSeconds() - Math.round((this.#now() - moment) / 1000);
  }

  /** False for one whose user may not be signed in any more: it has ended. */
  async #isGood(session: Session): Promise<boolean> {
    try {
      identify(this.#context.snapshot(), this.#context.revocations, session);
      return true;
    } catch (error) {
      // What is not known now, as while a store is out of reach, ends nothing.
      if (!(error instanceof Refusal) || error.status !== 401) throw error;
      await this.end(session.tokenId);
      return false;
    }
  }
}
