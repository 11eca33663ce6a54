import type { AccessRules } from "../../core/access/access-rules.ts";
import { type AccessDiff, describeItem, diffSnapshots, effectsOn } from "../../core/access/diff.ts";
import { userHolder } from "../../core/access/grant.ts";
import type { AccessProblem } from "../../core/access/parse.ts";
import type { Snapshot } from "../../core/access/snapshot.ts";
import { epochSeconds } from "../../core/base/clock.ts";
import { lazily } from "../../core/base/memoize.ts";
import type { Author } from "../../core/observe/audit-line.ts";
import type { StoreReplica } from "../store/open.ts";

/** Limits: versions; and of each, the users compared, their changes, and names per kind of record. */
const VERSIONS = 50;
const USERS = 20;
const EFFECTS = 50;
const NAMES = 20;

const recordKinds = [
  ["usersAdded", "added"],
  ["usersRemoved", "removed with all grants"],
  ["usersChanged", "password, email, state, attributes or same_as changed"],
  ["groupsAdded", "group added"],
  ["groupsRemoved", "group removed with all grants"],
  ["groupsChanged", "members of the group changed"],
  ["boundariesAdded", "boundary added"],
  ["boundariesRemoved", "boundary removed"],
] as const;

function describeVersion(
  /** At epoch seconds; the author is undefined if the version does not record it. */
  origin: { at: number; version: string; author: Author | undefined },
  before: Snapshot,
  after: Snapshot,
  diff: AccessDiff,
) {
  const { grantsAdded, grantsRemoved, grantsRaised, grantsLowered, grantsChanged } = diff;
  const grants = [grantsAdded, grantsRemoved, grantsRaised, grantsLowered, grantsChanged].flat();
  const users = [...diff.usersAdded, ...diff.usersRemoved, ...diff.usersChanged];
  const holders = new Set([...users.map(userHolder), ...grants.map(({ holder }) => holder)]);
  const effects = effectsOn([...holders].slice(0, USERS), before, after, origin.at * 1000);
  return {
    ...origin,
    effects: effects.take(EFFECTS).toArray(),
    hasOthers: holders.size > USERS,
    records: recordKinds
      .filter(([kind]) => diff[kind].length > 0)
      .map(([kind, label]) => {
        const names = diff[kind].slice(0, NAMES).map(describeItem);
        return { label, names, more: diff[kind].length - names.length };
      }),
  };
}

export type LoadedVersion = ReturnType<typeof describeVersion>;

/** A loaded version, or a rejected file, at epoch seconds. */
export type AccessEvent = LoadedVersion | { at: number; problems: readonly AccessProblem[] };

async function readVersions({ store, replica }: StoreReplica): Promise<LoadedVersion[]> {
  const { versionsBack } = await import("../store/access-store.ts");
  const last: LoadedVersion[] = [];
  const { snapshot, position } = replica.state;
  const versions = versionsBack(store.database.query, { snapshot, position });
  for await (const { at, version, author, before, after } of versions) {
    const found = { at: Math.floor(at.getTime() / 1000), version: String(version), author };
    const diff = diffSnapshots(before, after);
    if (last.push(describeVersion(found, before, after, diff)) === VERSIONS) break;
  }
  return last;
}

export interface History {
  /** Epoch seconds since when changes are known; undefined if a log has earlier ones. */
  readonly since: number | undefined;
  /** Newest first. @throws any error of the log */
  events(): Promise<readonly AccessEvent[]>;
}

/** Keeps the last versions of users and grants. @param log the store that has earlier versions */
export function openHistory(access: AccessRules, log: StoreReplica | undefined): History {
  let events: readonly AccessEvent[] = [];
  const earlier = log && lazily(() => readVersions(log));
  access.subscribe((event) => {
    const at = epochSeconds();
    if (event.kind === "failed") events = [{ at, problems: event.problems }, ...events];
    else {
      const { previous, snapshot, diff, author } = event;
      const origin = { at, version: snapshot.version, author };
      events = [describeVersion(origin, previous, snapshot, diff), ...events];
    }
    events = events.slice(0, VERSIONS);
  });
  return {
    since: log === undefined ? epochSeconds() : undefined,
    async events(): Promise<readonly AccessEvent[]> {
      if (earlier === undefined) return events;
      const read = await earlier();
      const known = new Set(events.map((event) => "version" in event && event.version));
      const before = read.filter(({ version }) => !known.has(version));
      return [...events, ...before].slice(0, VERSIONS);
    },
  };
}
