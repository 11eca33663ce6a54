import type { AccessRules, Author, ReloadEvent } from "../access/access-rules.ts";
import { type AccessDiff, diffSnapshots, type EffectChange, effectsOn } from "../access/diff.ts";
import type { AccessProblem } from "../access/parse.ts";
import type { Snapshot } from "../access/snapshot.ts";
import { epochSeconds } from "../clock.ts";
import type { StoreReplica } from "../store/open.ts";

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

const REMEMBERED = 50;
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

function describeVersion(found: FoundVersion): LoadedVersion {
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

async function readVersions({ store, replica }: StoreReplica): Promise<LoadedVersion[]> {
  const { versionsBack } = await import("../store/access-versions.ts");
  const last: LoadedVersion[] = [];
  const { snapshot, position } = replica.state;
  const versions = versionsBack(store.database.query, { snapshot, position });
  for await (const { at, version, author, before, after } of versions) {
    const found = { at: Math.floor(at.getTime() / 1000), version: String(version), author };
    const diff = diffSnapshots(before, after);
    if (last.push(describeVersion({ ...found, before, after, diff })) === REMEMBERED) break;
  }
  return last;
}

/** The last versions of users and grants. */
export class AccessHistory {
  #events: readonly AccessEvent[] = [];
  #earlier: Promise<readonly AccessEvent[]> | undefined;
  readonly #log: StoreReplica | undefined;
  /** Epoch seconds since when changes are known; undefined if a log has earlier ones. */
  readonly since: number | undefined;

  /** @param log the store that keeps earlier versions */
  constructor(access: AccessRules, log: StoreReplica | undefined) {
    this.#log = log;
    this.since = log === undefined ? epochSeconds() : undefined;
    access.subscribe((event) => {
      this.#events = [eventOf(event), ...this.#events].slice(0, REMEMBERED);
    });
  }

  /** @throws any error of the log that holds earlier versions */
  async events(): Promise<readonly AccessEvent[]> {
    if (this.#log === undefined) return this.#events;
    this.#earlier ??= readVersions(this.#log);
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
