/** How many sessions are remembered, and for how long. */
export interface SessionLimits {
  /** Sessions at one time; past it, those that were idle longest are forgotten. */
  readonly most: number;
  /** Sessions of one user at one time. */
  readonly mostPerUser: number;
  /** Milliseconds without a request after which a session is forgotten. */
  readonly idle: number;
}

const usual: SessionLimits = { most: 10_000, mostPerUser: 100, idle: 60 * 60 * 1000 };

/** Whose each session is, kept here or in another process. */
export interface SessionRegister {
  /** Remembers a new session as the user's; false if it is another user's already. */
  open(id: string, username: string): boolean | Promise<boolean>;
  /** True if the session is the user's; it counts as used then. */
  use(id: string, username: string): boolean | Promise<boolean>;
  /** Forgets a session. */
  end(id: string): void;
}

interface Session {
  readonly username: string;
  usedAt: number;
}

/**
 * Whose each session of the server behind is. A session that is not remembered is nobody's: its
 * client is told that it is over, and begins another one.
 */
export class Sessions implements SessionRegister {
  readonly #limits: SessionLimits;
  readonly #now: () => number;
  /** In the order of their last use, the idlest first. */
  readonly #sessions = new Map<string, Session>();

  /** @param now milliseconds on a clock that does not jump */
  constructor(limits: SessionLimits = usual, now: () => number = () => performance.now()) {
    this.#limits = limits;
    this.#now = now;
  }

  /** Sessions that are remembered. */
  get size(): number {
    return this.#sessions.size;
  }

  /** Remembers a new session as the user's; false if it is another user's already. */
  open(id: string, username: string): boolean {
    this.#forgetIdle();
    const known = this.#sessions.get(id);
    if (known !== undefined && known.username !== username) return false;
    this.#sessions.delete(id);
    this.#makeRoom(username);
    this.#sessions.set(id, { username, usedAt: this.#now() });
    return true;
  }

  /** True if the session is the user's; it counts as used then. */
  use(id: string, username: string): boolean {
    this.#forgetIdle();
    const session = this.#sessions.get(id);
    if (session?.username !== username) return false;
    session.usedAt = this.#now();
    this.#sessions.delete(id);
    this.#sessions.set(id, session);
    return true;
  }

  /** Forgets a session. */
  end(id: string): void {
    this.#sessions.delete(id);
  }

  #forgetIdle(): void {
    const oldest = this.#now() - this.#limits.idle;
    for (const [id, { usedAt }] of this.#sessions) {
      if (usedAt > oldest) return;
      this.#sessions.delete(id);
    }
  }

  #makeRoom(username: string): void {
    const own = [...this.#sessions].filter(([, session]) => session.username === username);
    const [first] = this.#sessions.keys();
    const [ownFirst] = own[0] ?? [];
    if (own.length >= this.#limits.mostPerUser && ownFirst !== undefined) this.end(ownFirst);
    else if (this.#sessions.size >= this.#limits.most && first !== undefined) this.end(first);
  }
}
