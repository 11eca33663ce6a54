import { randomBytes, randomUUID } from "node:crypto";
import type { User } from "../../core/access/grant.ts";
import { epochSeconds } from "../../core/base/clock.ts";
import { Refusal } from "../../core/base/refusal.ts";
import { hashId } from "../../core/base/sealed-bytes.ts";
import { earliestIssue, identify, passwordFingerprint } from "../../core/identity/authenticate.ts";
import { parseSignIn } from "../../core/identity/sign-in.ts";
import type { SignedIn, SignIns } from "../oauth/client/sign-ins.ts";
import type { AccountContext } from "../oauth/server/connections.ts";

/** A session expires after this time without requests, and after the longest time in any case. */
export const IDLE_MS = 30 * 60_000;
export const LONGEST_MS = 12 * 3_600_000;
/** When a user has more sessions, the least recently used one ends. */
const PER_USER = 20;

/** A signed-in browser. Its issue is in epoch seconds, other times in ms of the sessions' clock. */
export interface Session {
  /** Identifies the session on pages; grants no access. */
  readonly tokenId: string;
  readonly username: string;
  /** Helps users recognize a browser; the browser itself reports it. */
  readonly address: string;
  readonly userAgent: string;
  /** The fingerprint of the password, or the credential of a sign-in through a provider. */
  readonly credential: string;
  readonly issuedAt: number;
  readonly startedAt: number;
  readonly usedAt: number;
}

/** A session with the groups and attributes of its sign-in through a provider, if it has one. */
export interface CurrentSession extends Session {
  readonly signIn?: SignedIn;
}

export interface SessionStore {
  add(key: string, session: Session): Promise<void>;
  /** @param isPassive true for a page that refreshes itself; this does not extend the session */
  use(key: string, isPassive: boolean): Promise<Session | undefined>;
  list(username: string | undefined): Promise<readonly Session[]>;
  end(tokenId: string): Promise<void>;
}

function msLeft({ startedAt, usedAt }: Session, now: number): number {
  return Math.min(startedAt + LONGEST_MS, usedAt + IDLE_MS) - now;
}

function sessionsInMemory(now: () => number): SessionStore {
  const sessions = new Map<string, Session>();
  function remove(matches: (session: Session) => boolean): void {
    for (const [key, session] of sessions) if (matches(session)) sessions.delete(key);
  }
  const removeExpired = () => remove((session) => msLeft(session, now()) <= 0);
  return {
    async add(key, session) {
      sessions.set(key, session);
    },
    async use(key, isPassive) {
      removeExpired();
      const session = sessions.get(key);
      if (session === undefined || isPassive) return session;
      const used = { ...session, usedAt: now() };
      sessions.set(key, used);
      return used;
    },
    async list(username) {
      removeExpired();
      return [...sessions.values()].filter((one) => [undefined, one.username].includes(username));
    },
    end: async (tokenId) => remove((session) => session.tokenId === tokenId),
  };
}

export type Sessions = ReturnType<typeof openSessions>;

interface SessionContext extends AccountContext {
  readonly signIns?: Pick<SignIns, "current" | "forget" | "requireUnchanged"> | undefined;
}

/**
 * The sessions of the console. Each is stored under the hash of its secret, and checked against the
 * access rules and the revocations at every use.
 */
export function openSessions(
  { access, revocations, signIns }: SessionContext,
  now = () => performance.now(),
  store = sessionsInMemory(now),
) {
  /** Ends the session and returns undefined if its user may no longer be signed in. */
  async function ifValid<Result>(
    session: Session,
    read: () => Result | Promise<Result>,
  ): Promise<Result | undefined> {
    try {
      identify(access.snapshot, revocations, session);
      return await read();
    } catch (error) {
      // A temporary failure, such as an unreachable store, ends no session.
      if (!(error instanceof Refusal) || error.status !== 401) throw error;
      await end(session);
      return undefined;
    }
  }

  /** False once the user may no longer be signed in, or has other groups than the session says. */
  function isGood(session: CurrentSession): boolean {
    try {
      identify(access.snapshot, revocations, session);
      if (session.signIn !== undefined) signIns?.requireUnchanged(session.signIn);
      return true;
    } catch {
      return false;
    }
  }

  async function end({ tokenId, credential }: Session): Promise<void> {
    await store.end(tokenId);
    await signIns?.forget(credential);
  }

  async function list(username?: string): Promise<Session[]> {
    const valid: Session[] = [];
    for (const session of await store.list(username)) {
      if (await ifValid(session, () => true)) valid.push(session);
    }
    return valid.sort((one, other) => other.usedAt - one.usedAt);
  }

  return {
    list,
    end,
    isGood,
    /** Signs a user in. @returns the secret for the browser */
    async open(
      user: User,
      place: Pick<Session, "address" | "userAgent">,
      credential = passwordFingerprint(user),
    ): Promise<string> {
      const secret = randomBytes(32).toString("base64url");
      const { username } = user;
      await store.add(hashId(secret), {
        ...place,
        username,
        tokenId: randomUUID(),
        credential,
        // As for tokens: a revocation up to some second must not end sessions opened after it.
        issuedAt: Math.max(epochSeconds(), earliestIssue(revocations, user)),
        startedAt: now(),
        usedAt: now(),
      });
      for (const session of (await list(username)).slice(PER_USER)) await end(session);
      return secret;
    },
    async use(secret: string, isPassive = false): Promise<Session | undefined> {
      const session = await store.use(hashId(secret), isPassive);
      return session && ifValid(session, () => session);
    },
    /**
     * Adds what a sign-in says about its user, asking the provider again if necessary.
     *
     * @throws Refusal `groups_unavailable` or `issuer_unreachable`
     */
    async addSignIn(session: Session): Promise<CurrentSession | undefined> {
      const { credential, username } = session;
      if (parseSignIn(credential) === undefined) return session;
      return ifValid(session, async () => {
        if (signIns === undefined) throw new Refusal("token_revoked");
        return { ...session, signIn: await signIns.current(credential, username) };
      });
    },
    msLeft(session: Session): number {
      const { until } = parseSignIn(session.credential) ?? { until: Number.POSITIVE_INFINITY };
      return Math.min(msLeft(session, now()), until * 1000 - Date.now());
    },
    /** Converts a moment of the sessions' clock to epoch seconds. */
    epochOf: (moment: number) => epochSeconds() - Math.round((now() - moment) / 1000),
  };
}
