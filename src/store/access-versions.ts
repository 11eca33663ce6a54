import * as z from "zod";
import type { Author } from "../access/access-rules.ts";
import { updatedUser, writtenAttributes } from "../access/grant.ts";
import { indexOf, replaceRecords } from "../access/record-change.ts";
import type { AccessRecords, TomlTable } from "../access/records.ts";
import { isExternalUsername } from "../access/roles.ts";
import { blankUser, type Snapshot, type User } from "../access/snapshot.ts";
import { runCooperatively } from "../cooperative-scheduling.ts";
import { Refusal } from "../refusal.ts";
import type { ReplacementPlan } from "./access-store.ts";
import type { Query } from "./database.ts";
import { authorShape, entryColumns, parseEntry, parseReplacement } from "./log.ts";
import type { SharedState } from "./state.ts";
import { allRecords, replacementBy } from "./transfer.ts";

export interface AccessVersion {
  readonly version: number;
  readonly at: Date;
  readonly author: Author;
  readonly before: Snapshot;
  readonly after: Snapshot;
}

const PAGE = 100;

/** Yields every version from the first through `upTo`. */
async function* versionsUpTo(query: Query, upTo: number): AsyncGenerator<AccessVersion, undefined> {
  const sql = `select ${entryColumns} from gatehouse.log
    where kind = 'access' and version > $1 and version <= $2 order by version limit ${PAGE}`;
  let after = await runCooperatively(indexOf([], [], "0"));
  for (let last = 0; ; ) {
    const rows = await query(sql, [last, upTo]);
    for (const row of rows) {
      const { version, at, author, change } = parseEntry(row);
      last = version;
      if (change.kind !== "access") continue;
      const before = after;
      after = await runCooperatively(replaceRecords(before, change.replacement, String(version)));
      yield { version, at, author, before, after };
    }
    if (rows.length < PAGE) return;
  }
}

const backSql = `select version, at, author, before,
    coalesce((select version from gatehouse.log o where o.kind = 'access' and o.version < l.version
      order by version desc limit 1), 0) as previous
  from gatehouse.log l where kind = 'access' and version <= $1 order by version desc limit ${PAGE}`;

const backShape = z.object({
  ...{ version: z.int(), at: z.coerce.date(), author: authorShape },
  ...{ before: z.unknown(), previous: z.int() },
});

/** Yields versions from the newest back, and reads only as much of the log as is consumed. */
export async function* versionsBack(
  query: Query,
  { snapshot, position }: Pick<SharedState, "snapshot" | "position">,
): AsyncGenerator<AccessVersion, undefined> {
  let after = snapshot;
  for (let next = position.version; next > 0; ) {
    const rows = await query(backSql, [next]);
    for (const row of rows) {
      const { version, at, author, before, previous } = backShape.parse(row);
      // Written by a release that did not record the previous state.
      if (before === null) {
        yield* (await Array.fromAsync(versionsUpTo(query, version))).reverse();
        return;
      }
      const earlier = replaceRecords(after, parseReplacement(before), String(previous));
      const held = await runCooperatively(earlier);
      yield { version, at, author, before: held, after };
      after = held;
      next = previous;
    }
    if (rows.length < PAGE) return;
  }
}

export async function accessAt(
  query: Query,
  state: Pick<SharedState, "snapshot" | "position">,
  version: number,
): Promise<Snapshot> {
  let { snapshot } = state;
  for await (const one of versionsBack(query, state)) {
    if (one.version <= version) break;
    snapshot = one.before;
  }
  return snapshot;
}

export function editableUser(user: User): TomlTable {
  return { username: user.username, ...writtenAttributes(user) };
}

/** A user of an external authorization server, known only by attributes. */
function newRecord({ username, attributes }: User): User {
  return updatedUser(blankUser(username), { attributes });
}

/** Takes grants, boundaries and attributes from the second argument, and all else from the first. */
function merge(current: Snapshot, { users, grants, boundaries }: AccessRecords): AccessRecords {
  const wanted = new Map(users.map((user) => [user.username, user]));
  const kept = Array.from(current.users.values(), (user) =>
    updatedUser(user, { attributes: wanted.get(user.username)?.attributes }),
  );
  const added = users.filter(({ username }) => !current.users.has(username)).map(newRecord);
  return { users: [...kept, ...added], grants, boundaries };
}

/** What a text says about a user that applying it would not change; undefined if nothing. */
function objection(current: Snapshot, user: User): string | undefined {
  const { username, email, passwordHash, disabled, tokensValidAfter } = user;
  const record = current.users.get(username);
  // Users with a password are added and removed by other commands.
  if (record === undefined && !isExternalUsername(username))
    return `${username} has no record: \`user add\` makes it`;
  const known = record ?? newRecord(user);
  const isSame =
    (email === undefined || email === known.email) &&
    (passwordHash === undefined || passwordHash === known.passwordHash) &&
    (!disabled || known.disabled) &&
    (tokensValidAfter === 0 || tokensValidAfter === known.tokensValidAfter);
  if (isSame) return undefined;
  return `${username}: of a record only attributes are changed here; all else by \`user\``;
}

const MOST_OBJECTIONS = 20;

/** @throws Error that lists why the text cannot be applied and which commands to use instead */
function requireApplicable(current: Snapshot, users: readonly User[]): void {
  const named = new Set(users.map(({ username }) => username));
  const missing = current.users.keys().filter((name) => !named.has(name));
  const objections = [
    ...users.flatMap((user) => objection(current, user) ?? []),
    ...missing.map((name) => `${name} is missing: \`user remove\` takes a record away`),
  ];
  if (objections.length === 0) return;
  const more = objections.length - MOST_OBJECTIONS;
  const shown = objections.slice(0, MOST_OBJECTIONS);
  throw new Error([...shown, ...(more > 0 ? [`and ${more} more`] : [])].join("\n"));
}

/** @throws from the plan: Refusal `version_conflict`, or Error why the text cannot be applied */
export function planApply(records: AccessRecords, version: string): ReplacementPlan {
  return (current) => {
    if (version !== current.version) {
      const detail = `made of version ${version}; the newest is ${current.version}`;
      throw new Refusal("version_conflict", { detail });
    }
    requireApplicable(current, records.users);
    return replacementBy(current, merge(current, records));
  };
}

/** Users whom a rollback does not restore. */
export function usersGone(current: Snapshot, earlier: Snapshot): string[] {
  return [...earlier.users.keys().filter((name) => !current.users.has(name))].sort();
}

export function planRollback(earlier: Snapshot): ReplacementPlan {
  const { boundaries } = earlier;
  return (current) => {
    const gone = new Set(usersGone(current, earlier));
    const held = allRecords(earlier).filter(({ user }) => !gone.has(user?.username ?? ""));
    const users = held.flatMap(({ user }) => user ?? []);
    const grants = held.flatMap(({ grants }) => grants);
    return replacementBy(current, merge(current, { users, grants, boundaries }));
  };
}
