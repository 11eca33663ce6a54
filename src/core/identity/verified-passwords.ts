import { createHmac, randomBytes } from "node:crypto";
import { LRUCache } from "lru-cache";
import type { User } from "../access/grant.ts";
import type { Snapshot } from "../access/snapshot.ts";
import { checkPassword, type LoginContext } from "./login.ts";
import { addressKey, type LoginOrigin } from "./throttle.ts";

const SIXTY_SECONDS = { max: 10_000, ttl: 60_000 };

interface Verified {
  readonly digest: string;
  /** The user's hash that the password was verified with. */
  readonly passwordHash: string | undefined;
}

/**
 * Verifies passwords that are sent with each request. A verified one is remembered for 60 seconds,
 * as a keyed digest and in this process only, for its user and address.
 *
 * A wrong password makes the memory of its user and address forget. Otherwise guesses could be
 * tried against it after the limits of failed logins are exceeded.
 */
export class VerifiedPasswords {
  readonly #login: LoginContext;
  readonly #key = randomBytes(32);
  readonly #verified = new LRUCache<string, Verified>(SIXTY_SECONDS);
  /** Requests with the same password share its verification. */
  readonly #pending = new Map<string, Promise<User>>();

  constructor(login: LoginContext) {
    this.#login = login;
  }

  /** The user whose password was verified before, and is still in force. */
  recall(
    snapshot: Snapshot,
    username: string,
    password: string,
    origin: LoginOrigin,
  ): User | undefined {
    const place = loginKey(username, origin);
    const verified = this.#verified.get(place);
    if (verified === undefined) return undefined;
    const user = snapshot.users.get(username);
    const isInForce =
      user !== undefined && !user.disabled && user.passwordHash === verified.passwordHash;
    if (isInForce && verified.digest === this.#digestOf(password)) return user;
    this.#verified.delete(place);
    return undefined;
  }

  /** @throws Refusal `credentials_invalid`, `too_many_attempts` or `login_busy` */
  verify(username: string, password: string, origin: LoginOrigin): Promise<User> {
    const digest = this.#digestOf(password);
    const place = loginKey(username, origin);
    const key = `${place} ${digest}`;
    const pending = this.#pending.get(key);
    if (pending !== undefined) return pending;
    // Without the signal of the connection, since others may wait for the same verification.
    const { address, isShared } = origin;
    const verifying = checkPassword(this.#login, username, password, { address, isShared })
      .then((user) => {
        this.#verified.set(place, { digest, passwordHash: user.passwordHash });
        return user;
      })
      .finally(() => this.#pending.delete(key));
    this.#pending.set(key, verifying);
    return verifying;
  }

  #digestOf(password: string): string {
    return createHmac("sha256", this.#key).update(password).digest("base64");
  }
}

function loginKey(username: string, { address }: LoginOrigin): string {
  return `${addressKey(address)} ${username}`;
}
