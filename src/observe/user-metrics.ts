import type { Counter } from "prom-client";

/** Users that are counted by name; all others are counted together. */
export const NAMED_USERS = 200;
/** Those others. No user has that name: a username has no parenthesis. */
export const OTHER_USERS = "(other)";

interface Count {
  allow: number;
  deny: number;
}

/** Counts the requests of users: by name of those that came first, up to a bound. */
export class UserCounts {
  readonly #counts = new Map<string, Count>();

  add(user: string, decision: "allow" | "deny"): void {
    const count = this.#counts.get(user) ?? this.#open(user);
    count[decision]++;
  }

  #open(user: string): Count {
    const name = this.#counts.size < NAMED_USERS ? user : OTHER_USERS;
    const known = this.#counts.get(name);
    if (known !== undefined) return known;
    const count = { allow: 0, deny: 0 };
    this.#counts.set(name, count);
    return count;
  }

  /** Adds what was counted to `counter`, and begins anew with the same names. */
  moveTo(counter: Counter<"user" | "decision">): void {
    for (const [user, count] of this.#counts) {
      for (const decision of ["allow", "deny"] as const) {
        if (count[decision] > 0) counter.inc({ user, decision }, count[decision]);
        count[decision] = 0;
      }
    }
  }
}
