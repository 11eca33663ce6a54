import { createHash, randomBytes, randomUUID } from "node:crypto";
import type { Snapshot, User } from "../access/snapshot.ts";
import { epochSeconds } from "../clock.ts";
import { credentialOf, earliestIssue, identify } from "../identity/authenticate.ts";
import type { Revocations } from "../identity/revocations.ts";
import { Refusal } from "../refusal.ts";

/** A session without requests expires after this time. */
export const IDLE_MS = 30 * 60_000;
/** Every session expires after this time. */
export const LONGEST_MS = 12 * 3_600_000;
/** Sessions per user; beyond that the one unused for longest ends. */
const PER_USER = 20;

/** Helps users recognize a browser; the browser itself reports both values. */
interface BrowserPlace {
  readonly address: string;
  readonly userAgent: string;
}

/** A signed-in browser. Times of issue are in epoch seconds. */
export interface Session extends BrowserPlace {
  /** Identifies the session on pages; grants no access. */
  readonly tokenId: string;
  readonly username: string;
  /** The fingerprint of the password used to sign in. */
  readonly credential: string;
  readonly issuedAt: number;
  /** Milliseconds of the sessions' clock. */
  readonly startedAt: number;
  readonly usedAt: number;
}

/** Storage of sessions under the hashes of their secrets. */
export interface HeldSessions {
  add(key: string, session: Session): Promise<void>;
  /**
   * Finds an unexpired session; its times are by this process's clock.
   *
   * @param isPassive true for a page that refreshes itself, which does not count as use
   */
  use(key: string, isPassive: boolean): Promise<Session | undefined>;
  list(username: string | undefined): Promise<readonly Session[]>;
  end(tokenId: string): Promise<void>;
}

function msLeft({ startedAt, usedAt }: Session, now: number): number {
  return Math.min(startedAt + LONGEST_MS, usedAt + IDLE_MS) - now;
}

/** Sessions in memory, which end with the process. */
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

interface SessionContext {
  readonly snapshot: () => Snapshot;
  readonly revocations: Pick<Revocations, "isRevoked" | "earliestIssue">;
}

function digest(secret: string): string {
  return createHash("sha256").update(secret).digest("base64url");
}

/**
 * The sessions of the console. Each is stored under the hash of its secret, and checked against the
 * access rules and the revocations at every use.
 */
export class Sessions {
  readonly #context: SessionContext;
  readonly #now: () => number;
  readonly #held: HeldSessions;

  /** @param now milliseconds of a monotonic clock */
  constructor(
    context: SessionContext,
    now: () => number = () => performance.now(),
    held: HeldSessions = new SessionsInMemory(now),
  ) {
    this.#context = context;
    this.#now = now;
    this.#held = held;
  }

  /** Signs a user in. @returns the secret for the browser */
  async open(user: User, { address, userAgent }: BrowserPlace): Promise<string> {
    const secret = randomBytes(32).toString("base64url");
    const now = this.#now();
    await this.#held.add(digest(secret), {
      address,
      userAgent,
      tokenId: randomUUID(),
      username: user.username,
      credential: credentialOf(user),
      // As for tokens: a revocation up to some second must not end sessions opened after it.
      issuedAt: Math.max(epochSeconds(), earliestIssue(this.#context.revocations, user)),
      startedAt: now,
      usedAt: now,
    });
    const tooMany = (await this.list(user.username)).slice(PER_USER);
    for (const { tokenId } of tooMany) await this.end(tokenId);
    return secret;
  }

  async use(secret: string, isPassive = false): Promise<Session | undefined> {
    const session = await this.#held.use(digest(secret), isPassive);
    return session !== undefined && (await this.#isGood(session)) ? session : undefined;
  }

  /** Sessions of a user, or of all, most recently used first. */
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

  msLeft(session: Session): number {
    return msLeft(session, this.#now());
  }

  /** Converts a moment of the sessions' clock to epoch seconds. */
  epochOf(moment: number): number {
    return epochSeconds() - Math.round((this.#now() - moment) / 1000);
  }

  /** Ends the session and returns false if its user may no longer be signed in. */
  async #isGood(session: Session): Promise<boolean> {
    try {
      identify(this.#context.snapshot(), this.#context.revocations, session);
      return true;
    } catch (error) {
      // A temporary failure, such as an unreachable store, ends no session.
      if (!(error instanceof Refusal) || error.status !== 401) throw error;
      await this.end(session.tokenId);
      return false;
    }
  }
}
