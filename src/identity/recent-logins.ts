import type { HashClient } from "./hash-queue.ts";

/** Addresses, and users, that are remembered; past it, those that logged in longest ago go. */
const CAPACITY = 10_000;
/** Milliseconds for which a good login is remembered. */
const LATELY_MS = 86_400_000;

/** Names, each with the moment at which it was noted last. */
class Recent {
  readonly #seen = new Map<string, number>();

  note(name: string): void {
    this.#seen.delete(name);
    this.#seen.set(name, performance.now());
    const [oldest] = this.#seen.keys();
    if (this.#seen.size > CAPACITY && oldest !== undefined) this.#seen.delete(oldest);
  }

  has(name: string): boolean {
    const seen = this.#seen.get(name);
    return seen !== undefined && performance.now() - seen < LATELY_MS;
  }
}

/** Where a client of the queue of hashes stands. */
export interface Place {
  readonly lane: "address" | "user" | "stranger";
  /** Whom it shares a line with. */
  readonly line: string;
}

/**
 * Who has logged in well lately. In a storm of logins from many addresses they have places of their
 * own: by an address, which nobody else can come from, or else by the user's name, which others can
 * claim to the harm of that user alone.
 */
export class RecentLogins {
  readonly #addresses = new Recent();
  readonly #users = new Recent();

  note({ username, address, isShared }: Omit<HashClient, "signal">): void {
    if (!isShared) this.#addresses.note(address);
    if (username !== undefined) this.#users.note(username);
  }

  placeOf({ username, address, isShared }: HashClient): Place {
    if (!isShared && this.#addresses.has(address)) return { lane: "address", line: address };
    if (username !== undefined && this.#users.has(username))
      return { lane: "user", line: username };
    return { lane: "stranger", line: address };
  }
}
