import * as z from "zod";
import type { AccessRules, ChangeOptions, WrittenChange } from "../../core/access/access-rules.ts";
import { requireRemainingOwners } from "../../core/access/administration.ts";
import {
  groupHolder,
  type Holder,
  holderText,
  type Limits,
  type User,
  updatedUser,
  userHolder,
  userOf,
  writtenGroup,
  writtenUser,
} from "../../core/access/grant.ts";
import {
  type Change,
  type HolderRecords,
  holderRecords,
  holdersIn,
  isEmpty,
  planReplacement,
  type Replacement,
  replaceRecords,
} from "../../core/access/record-change.ts";
import {
  type AccessRecords,
  type TomlTable,
  writtenBoundary,
  writtenEntry,
} from "../../core/access/records.ts";
import { isExternalUsername } from "../../core/access/roles.ts";
import { blankUser, type Snapshot } from "../../core/access/snapshot.ts";
import { runCooperatively } from "../../core/base/cooperative-scheduling.ts";
import { Refusal } from "../../core/base/refusal.ts";
import { renderTable } from "../../core/base/toml.ts";
import type { Author } from "../../core/observe/audit-line.ts";
import type { Query } from "./database.ts";
import { authorShape, parseReplacement, writeExact, writtenRecords } from "./log.ts";
import type { Replica } from "./replica.ts";
import type { SharedState } from "./state.ts";
import type { StoreWriter } from "./writer.ts";

export type ReplacementPlan = (current: Snapshot) => Replacement;

/** Writes the records that a starting replica reads instead of the whole log. */
async function writeRecords(
  query: Query,
  { records, boundaries }: Replacement,
  version: number,
): Promise<void> {
  const { gone = [], kept = [] } = Object.groupBy(records, ([, own]) =>
    isEmpty(own) ? "gone" : "kept",
  );
  const deleteSql = "delete from gatehouse.users where username = any($1)";
  await query(deleteSql, [gone.map(([holder]) => holderText(holder))]);
  await query(
    `insert into gatehouse.users (username, version, record)
      select name, $1, record::json from unnest($2::text[], $3::text[]) as given (name, record)
      on conflict (username) do update set version = excluded.version, record = excluded.record`,
    [
      version,
      kept.map(([holder]) => holderText(holder)),
      kept.map(([, own]) => writeExact(writtenRecords(own))),
    ],
  );
  if (boundaries === undefined) return;
  const written = writeExact(boundaries.map(writtenBoundary));
  await query("update gatehouse.boundaries set version = $1, records = $2", [version, written]);
}

function replacedBy(snapshot: Snapshot, { records, boundaries }: Replacement): Replacement {
  const own = records.keys().map((holder) => [holder, holderRecords(snapshot, holder)] as const);
  return {
    records: new Map(own),
    ...(boundaries === undefined ? {} : { boundaries: snapshot.boundaries }),
  };
}

/**
 * @param force also if the last Owner of a database or the last administrator is lost
 * @throws Refusal `last_owner` or `last_administrator`; RecordsError about contradicting records
 */
export async function previewAccess(
  { snapshot: before }: SharedState,
  replacement: Replacement,
  version: number,
  force: boolean,
): Promise<Snapshot> {
  const after = await runCooperatively(replaceRecords(before, replacement, String(version)));
  if (!force) await runCooperatively(requireRemainingOwners(before, after));
  return after;
}

interface PlannedReplacement {
  readonly replacement: Replacement;
  readonly changes: readonly Change[];
}

async function writeAccess(
  { state, writer }: Pick<StoreAccess, "state" | "writer">,
  plan: (current: Snapshot) => PlannedReplacement,
  { force = false, beforeWrite, author }: ChangeOptions = {},
): Promise<WrittenChange> {
  let written: WrittenChange = { snapshot: state.snapshot, changes: [] };
  await writer.append(async (turn) => {
    const before = state.snapshot;
    const { replacement, changes } = plan(before);
    written = { snapshot: before, changes };
    if (replacement.records.size === 0 && replacement.boundaries === undefined) return;
    await beforeWrite?.(changes);
    const next = await previewAccess(state, replacement, turn.version, force);
    await writeRecords(turn.query, replacement, turn.version);
    const change = { kind: "access", replacement } as const;
    await turn.append({ change, before: replacedBy(before, replacement) });
    written = { snapshot: next, changes };
  }, author);
  return written;
}

/**
 * Runs `plan` while no other writer can change the records. Resolves to the state as written.
 *
 * @throws what `previewAccess` throws; Refusal from `plan`, `store_unreachable`, `store_uncertain`
 */
export async function replaceAccess(
  store: Pick<StoreAccess, "state" | "writer">,
  plan: ReplacementPlan,
  options: ChangeOptions,
): Promise<Snapshot> {
  const planned = (current: Snapshot) => ({ replacement: plan(current), changes: [] });
  return (await writeAccess(store, planned, options)).snapshot;
}

export interface StoreAccess {
  readonly state: SharedState;
  readonly writer: StoreWriter;
  /** Undefined for a command, which uses the state that it has just read. */
  readonly replica: Replica | undefined;
}

/** Opens the users, grants and boundaries in the store. Changes are in force at every replica. */
export function openAccessStore(store: StoreAccess): AccessRules {
  const { state, replica } = store;
  return {
    get snapshot() {
      replica?.requireFresh();
      return state.snapshot;
    },
    get version() {
      return state.snapshot.version;
    },
    stale: false,
    subscribe(listener) {
      state.listeners.push({ accessChanged: listener });
    },
    async reload() {
      await replica?.poll();
    },
    async change(plan, options) {
      const planned = (current: Snapshot) => {
        const changes = plan(current);
        return { replacement: planReplacement(current, changes), changes };
      };
      return writeAccess(store, planned, options);
    },
    async close() {},
  };
}

export interface AccessVersion {
  readonly version: number;
  readonly at: Date;
  readonly author: Author;
  readonly before: Snapshot;
  readonly after: Snapshot;
}

const PAGE = 100;

const newestFirstSql = `select version, at, author, before,
    coalesce((select version from gatehouse.log o where o.kind = 'access' and o.version < l.version
      order by version desc limit 1), 0) as previous
  from gatehouse.log l where kind = 'access' and version <= $1 order by version desc limit ${PAGE}`;

const versionShape = z.object({
  version: z.int(),
  at: z.coerce.date(),
  author: authorShape,
  before: z.unknown(),
  previous: z.int(),
});

/** Yields versions from the newest back, and reads only as much of the log as is consumed. */
export async function* versionsBack(
  query: Query,
  { snapshot, position }: Pick<SharedState, "snapshot" | "position">,
): AsyncGenerator<AccessVersion, undefined> {
  let after = snapshot;
  for (let next = position.version; next > 0; ) {
    const rows = await query(newestFirstSql, [next]);
    for (const row of rows) {
      const { version, at, author, before, previous } = versionShape.parse(row);
      const steps = replaceRecords(after, parseReplacement(before), String(previous));
      const earlier = await runCooperatively(steps);
      yield { version, at, author, before: earlier, after };
      after = earlier;
      next = previous;
    }
    if (rows.length < PAGE) return;
  }
}

/** With the names of its users who were removed since, even if others have these names now. */
export async function accessAt(
  query: Query,
  state: Pick<SharedState, "snapshot" | "position">,
  version: number,
): Promise<{ snapshot: Snapshot; gone: string[] }> {
  let { snapshot } = state;
  const removed = new Set<string>();
  for await (const { version: at, before, after } of versionsBack(query, state)) {
    if (at <= version) break;
    for (const name of before.users.keys()) if (!after.users.has(name)) removed.add(name);
    snapshot = before;
  }
  return { snapshot, gone: [...removed].filter((name) => snapshot.users.has(name)).sort() };
}

/** The first line of an export: this text, followed by the version. */
const versionMark = "# access version ";

function allRecords(snapshot: Snapshot): HolderRecords[] {
  return Array.from(holdersIn(snapshot), (holder) => holderRecords(snapshot, holder));
}

/** Renders the state as an access file that begins with its version. */
export function renderAccess(
  snapshot: Snapshot,
  userOf: (user: NonNullable<HolderRecords["user"]>) => TomlTable = writtenUser,
): string {
  const records = allRecords(snapshot);
  const users = records.flatMap(({ user }) => (user === undefined ? [] : [userOf(user)]));
  const grants = records.flatMap(({ grants }) => grants);
  const groups = records.flatMap(({ group = [] }) => group);
  return [
    `${versionMark}${snapshot.version}\n`,
    ...users.map((user) => renderTable("users", user)),
    ...groups.map((group) => renderTable("groups", writtenGroup(group))),
    ...grants.map((grant) => renderTable("acl", writtenEntry(grant))),
    ...snapshot.boundaries.map((boundary) => renderTable("boundaries", writtenBoundary(boundary))),
  ].join("\n");
}

export function exportedVersion(text: string): string | undefined {
  const [first = ""] = text.split("\n", 1);
  return first.startsWith(versionMark) ? first.slice(versionMark.length).trim() : undefined;
}

/** The records that differ from the current ones, and perhaps the boundaries. */
export function replacementBy(
  current: Snapshot,
  { users, groups, grants, boundaries }: AccessRecords,
): Replacement {
  const known = new Map(users.map((user) => [userHolder(user.username), user]));
  const own = Map.groupBy(grants, ({ holder }) => holder);
  const formed = new Map(groups.map((group) => [groupHolder(group.name), group]));
  const holders = [...known.keys(), ...formed.keys(), ...own.keys(), ...holdersIn(current)];
  const textOf = (records: HolderRecords) => writeExact(writtenRecords(records));
  const differing = Array.from(new Set(holders), (holder): [Holder, HolderRecords] => [
    holder,
    { user: known.get(holder), group: formed.get(holder), grants: own.get(holder) ?? [] },
  ]).filter(([holder, records]) => textOf(records) !== textOf(holderRecords(current, holder)));
  const boundaryText = (some: Snapshot["boundaries"]) => writeExact(some.map(writtenBoundary));
  const isSame = boundaryText(boundaries) === boundaryText(current.boundaries);
  return { records: new Map(differing), ...(isSame ? {} : { boundaries }) };
}

/** The fields of a user that an edited export may change. */
function editablePart({ username, attributes, sameAs }: User): User {
  return updatedUser(blankUser(username), { attributes, sameAs });
}

export function editableUser(user: User): TomlTable {
  return writtenUser(editablePart(user));
}

/**
 * Takes groups, grants, boundaries, attributes and `same_as` from the second argument, and all else
 * from the first.
 */
function merge(current: Snapshot, { users, ...records }: AccessRecords): AccessRecords {
  const wanted = new Map(users.map((user) => [user.username, user]));
  const kept = Array.from(current.users.values(), (user) => {
    const { attributes, sameAs } = wanted.get(user.username) ?? {};
    return updatedUser(user, { attributes, sameAs });
  });
  const added = users.filter(({ username }) => !current.users.has(username)).map(editablePart);
  return { ...records, users: [...kept, ...added] };
}

/** Why this user of an edited export cannot be applied. */
function objection(current: Snapshot, user: User): string | undefined {
  const { username, email, passwordHash, disabled, tokensValidAfter } = user;
  const record = current.users.get(username);
  // Users with a password are added and removed by other commands.
  if (record === undefined && !isExternalUsername(username))
    return `${username} has no record: create it with \`user add\``;
  const known = record ?? editablePart(user);
  const isSame =
    (email === undefined || email === known.email) &&
    (passwordHash === undefined || passwordHash === known.passwordHash) &&
    (!disabled || known.disabled) &&
    (tokensValidAfter === 0 || tokensValidAfter === known.tokensValidAfter);
  if (isSame) return undefined;
  return `${username}: only attributes and same_as can be changed here; use \`user\` for the rest`;
}

const MAX_OBJECTIONS = 20;

/** @throws Error that lists why the text cannot be applied and which commands to use instead */
function requireApplicable(current: Snapshot, users: readonly User[]): void {
  const named = new Set(users.map(({ username }) => username));
  const missing = current.users.keys().filter((name) => !named.has(name));
  const objections = [
    ...users.flatMap((user) => objection(current, user) ?? []),
    ...missing.map((name) => `${name} is missing: remove a user with \`user remove\``),
  ];
  if (objections.length === 0) return;
  const more = objections.length - MAX_OBJECTIONS;
  const first = objections.slice(0, MAX_OBJECTIONS);
  throw new Error([...first, ...(more > 0 ? [`and ${more} more`] : [])].join("\n"));
}

/** @throws from the plan: Refusal `version_conflict`, or Error why the text cannot be applied */
export function planApply(records: AccessRecords, version: string): ReplacementPlan {
  return (current) => {
    if (version !== current.version) {
      const detail = `version_conflict: exported at version ${version}; the newest is ${current.version}`;
      throw new Refusal("version_conflict", { detail });
    }
    requireApplicable(current, records.users);
    return replacementBy(current, merge(current, records));
  };
}

/** Without approvers who are gone. */
function approvedByOthers<One extends Limits>(one: One, gone: ReadonlySet<string>) {
  const { approvers = [], ...others } = one;
  const left = approvers.filter((holder) => !gone.has(userOf(holder) ?? ""));
  return { ...others, ...(left.length > 0 && { approvers: left }) };
}

/** @param removed users who get nothing back, since another person may have their name */
export function planRollback(earlier: Snapshot, removed: readonly string[]): ReplacementPlan {
  return (current) => {
    const missing = earlier.users.keys().filter((name) => !current.users.has(name));
    const gone = new Set([...removed, ...missing]);
    const kept = allRecords(earlier).filter(({ user }) => !gone.has(user?.username ?? ""));
    const isLost = ({ sameAs = "" }: User) => gone.has(sameAs) && !isExternalUsername(sameAs);
    const users = kept
      .flatMap(({ user }) => user ?? [])
      .map((user) => (isLost(user) ? updatedUser(user, { sameAs: undefined }) : user));
    const groups = kept.flatMap(({ group }) => {
      if (group === undefined) return [];
      return { ...group, members: group.members.filter((member) => !gone.has(member)) };
    });
    const grants = kept.flatMap((one) => one.grants.map((grant) => approvedByOthers(grant, gone)));
    const boundaries = earlier.boundaries.map((one) => approvedByOthers(one, gone));
    return replacementBy(current, merge(current, { users, groups, grants, boundaries }));
  };
}
