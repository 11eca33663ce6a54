import type { Counter } from "prom-client";

type Names<Name> = readonly [Name, Name, Name];

/** How often the same labels came. */
interface Labelled {
  readonly first: string;
  readonly second: string | number;
  readonly third: string;
  count: number;
}

/** Counts by the values of three labels, few each; a counter learns of them when it is read. */
export class CountsByLabels<Name extends string> {
  readonly #names: Names<Name>;
  readonly #counts = new Map<string, Labelled>();
  /** What was counted last: most of what comes is the same again. */
  #last: Labelled | undefined;

  constructor(...names: Names<Name>) {
    this.#names = names;
  }

  add(first: string, second: string | number, third: string): void {
    const last = this.#last;
    const isSame = last?.first === first && last.second === second && last.third === third;
    this.#last = isSame ? last : this.#find(first, second, third);
    this.#last.count++;
  }

  #find(first: string, second: string | number, third: string): Labelled {
    const key = `${first}\n${second}\n${third}`;
    let found = this.#counts.get(key);
    if (found === undefined) {
      found = { first, second, third, count: 0 };
      this.#counts.set(key, found);
    }
    return found;
  }

  /** Adds what was counted to `counter`, and begins anew. */
  moveTo(counter: Counter<Name>): void {
    for (const { first, second, third, count } of this.#counts.values()) {
      counter.labels(first, String(second), third).inc(count);
    }
    this.#counts.clear();
    this.#last = undefined;
  }

  /** The names of the labels, in the order of their values. */
  get names(): Name[] {
    return [...this.#names];
  }
}

/** Users that are counted by name; all others are counted together. */
export const NAMED_USERS = 200;
/** Those others. No user has that name: a username has no parenthesis. */
export const OTHER_USERS = "(other)";

/** Decisions on the requests of a user. */
interface Decided {
  allow: number;
  deny: number;
}

/** Counts the requests of users: by name of those that came first, up to a bound. */
export class UserCounts {
  readonly #counts = new Map<string, Decided>();

  add(user: string, decision: "allow" | "deny"): void {
    const count = this.#counts.get(user) ?? this.#open(user);
    count[decision]++;
  }

  #open(user: string): Decided {
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
