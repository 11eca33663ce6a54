import type { AccessRules, Author, ReloadEvent } from "../access/access-rules.ts";
import { type AccessDiff, type EffectChange, effectsOn } from "../access/diff.ts";
import type { AccessProblem } from "../access/parse.ts";
import type { Snapshot } from "../access/snapshot.ts";
import { epochSeconds } from "../clock.ts";

export interface LoadedVersion {
  readonly kind: "loaded";
  /** Epoch seconds. */
  readonly at: number;
  readonly version: string;
  /** Undefined if the version does not record it. */
  readonly author: Author | undefined;
  /** Who gains and loses what, for the first users affected. */
  readonly effects: readonly EffectChange[];
  /** True if more users are affected. */
  readonly hasOthers: boolean;
  readonly records: readonly ChangedNames[];
}

export interface ChangedNames {
  readonly kind: (typeof recordKinds)[number];
  readonly names: readonly string[];
  readonly more: number;
}

export interface FailedReload {
  readonly kind: "failed";
  /** Epoch seconds. */
  readonly at: number;
  readonly problems: readonly AccessProblem[];
}

export type AccessEvent = LoadedVersion | FailedReload;

type FoundVersion = Pick<LoadedVersion, "at" | "version" | "author"> & {
  readonly diff: AccessDiff;
  readonly before: Snapshot;
  readonly after: Snapshot;
};

export const REMEMBERED = 50;
/** Most users compared, and most differences kept, per version. */
const USERS = 20;
const EFFECTS = 50;
/** Most names kept per kind. */
const NAMES = 20;

const recordKinds = [
  ...(["usersAdded", "usersRemoved", "usersChanged"] as const),
  ...(["boundariesAdded", "boundariesRemoved"] as const),
] as const;

function firstUsersIn(diff: AccessDiff): string[] {
  const { boundariesAdded: _, boundariesRemoved: __, ...lists } = diff;
  const users = new Set<string>();
  for (const names of Object.values(lists)) {
    for (const name of names) {
      if (users.size > USERS) break;
      // A grant reads `user database role`.
      users.add(name.split(" ", 1)[0] ?? "");
    }
  }
  return [...users];
}

export function describeVersion(found: FoundVersion): LoadedVersion {
  const { before, after, diff, ...version } = found;
  const users = firstUsersIn(diff);
  const effects = effectsOn(users.slice(0, USERS), before, after, found.at * 1000);
  const records = recordKinds
    .filter((kind) => diff[kind].length > 0)
    .map((kind) => {
      const all = diff[kind];
      return { kind, names: all.slice(0, NAMES), more: Math.max(0, all.length - NAMES) };
    });
  return {
    ...{ kind: "loaded", ...version, records },
    effects: effects.take(EFFECTS).toArray(),
    hasOthers: users.length > USERS,
  };
}

function eventOf(event: ReloadEvent): AccessEvent {
  const at = epochSeconds();
  if (event.kind === "failed") return { at, kind: "failed", problems: event.problems };
  const { previous: before, snapshot: after, diff, author } = event;
  return describeVersion({ at, version: after.version, author, diff, before, after });
}

export class AccessHistory {
  #events: readonly AccessEvent[] = [];
  #earlier: Promise<readonly AccessEvent[]> | undefined;
  readonly #readEarlier: () => Promise<readonly AccessEvent[]>;
  /** Epoch seconds since when changes are known, unless a log has earlier ones. */
  readonly since: number = epochSeconds();

  /** @param readEarlier reads older versions from a log, newest first */
  constructor(
    access: Pick<AccessRules, "subscribe">,
    readEarlier: () => Promise<readonly AccessEvent[]>,
  ) {
    this.#readEarlier = readEarlier;
    access.subscribe((event) => {
      this.#events = [eventOf(event), ...this.#events].slice(0, REMEMBERED);
    });
  }

  /** @throws any error of the log that holds earlier versions */
  async events(): Promise<readonly AccessEvent[]> {
    this.#earlier ??= this.#readEarlier();
    const reading = this.#earlier;
    // After a failure the next caller reads again.
    reading.catch(() => {
      this.#earlier = undefined;
    });
    const earlier = await reading;
    const known = new Set(
      this.#events.map((event) => (event.kind === "loaded" ? event.version : "")),
    );
    const before = earlier.filter((one) => one.kind === "loaded" && !known.has(one.version));
    return [...this.#events, ...before].slice(0, REMEMBERED);
  }
}
