import type { Addition } from "../query/additions.ts";
import type { BytewiseColumns, CountedLimit } from "../query/limits.ts";
import { placeName } from "../query/names.ts";
import type { OperationNode } from "../query/node.ts";
import type { PermissionClass } from "../query/permissions.ts";
import type { Term } from "../query/tree.ts";
import {
  DatabaseGrants,
  type DecidingEntry,
  type EntrySlot,
  foldName,
  type NamedSlot,
  slotEntries,
  type UserGrants,
} from "./entries.ts";
import {
  type Boundary,
  type EntryPoint,
  type Holder,
  type Limits,
  type RateLimit,
  type Subject,
  writtenHolder,
} from "./grant.ts";
import { allEntries, type Caller, effectiveGrants, isMeant } from "./groups.ts";
import { type EntryRole, EVERY_DATABASE, outranks, roleAllows } from "./roles.ts";
import { nameDenial, type Snapshot } from "./snapshot.ts";

/** The chosen slots, first for the database, then for `*`. */
function* slotsFor(
  grants: UserGrants,
  database: string,
  choose: (entries: DatabaseGrants) => Iterable<NamedSlot>,
): Generator<{ readonly slot: EntrySlot; readonly place: string }, undefined> {
  for (const at of new Set([database, EVERY_DATABASE])) {
    const entries = grants.get(at);
    if (entries instanceof DatabaseGrants) {
      for (const [table, slot] of choose(entries)) {
        yield { slot, place: placeName(at, table) };
      }
    } else if (entries !== undefined) yield { slot: { permanent: entries }, place: placeName(at) };
  }
}

/**
 * Every entry that matches a table, the deciding one first: for the database, then for `*`, and for
 * the table, then a pattern, then the whole database. Without a table, only the last kind counts.
 */
function matchingEntries(
  grants: UserGrants,
  database: string,
  table: string | undefined,
  now: number,
): DecidingEntry[] {
  const slots = slotsFor(grants, database, (entries) => entries.matchingSlots(table));
  return [...slots.flatMap(({ slot, place }) => slotEntries(slot, place, now))];
}

export function decidingEntry(
  snapshot: Snapshot,
  caller: Caller,
  database: string,
  table: string | undefined,
  now: number,
): DecidingEntry | undefined {
  return matchingEntries(effectiveGrants(snapshot, caller, now), database, table, now)[0];
}

/**
 * The entries that decide on the tables and patterns that a user's entries name and whose names
 * have this beginning, in any case and Unicode form.
 */
export function entriesInside(
  grants: UserGrants,
  database: string,
  prefix: string,
  now: number,
): DecidingEntry[] {
  const names = new Set<string>();
  const folded = foldName(prefix);
  for (const at of [database, EVERY_DATABASE]) {
    const entries = grants.get(at);
    if (!(entries instanceof DatabaseGrants)) continue;
    for (const name of entries.tables()) if (foldName(name).startsWith(folded)) names.add(name);
  }
  return [...names].flatMap((name) => matchingEntries(grants, database, name, now).slice(0, 1));
}

export function findOtherSpelling(
  grants: UserGrants,
  database: string,
  table: string,
  now: number,
): { readonly spelling: string; readonly entry: DecidingEntry } | undefined {
  for (const at of [database, EVERY_DATABASE]) {
    const entries = grants.get(at);
    if (!(entries instanceof DatabaseGrants)) continue;
    const spelling = entries.otherSpelling(table);
    const slot = spelling === undefined ? undefined : entries.slotNamed(spelling);
    const [entry] = slot ? slotEntries(slot, placeName(at, spelling), now) : [];
    if (spelling !== undefined && entry !== undefined) return { spelling, entry };
  }
  return undefined;
}

/**
 * The entries in force through which a user may reach anything in a database, each with its place.
 * Entries for `*` count only if none covers the whole named database. An expired entry is included
 * if its place has no permanent one.
 */
export function* entriesInForce(
  grants: UserGrants,
  database: string,
  now: number,
): Generator<{ readonly entry: DecidingEntry; readonly place: string }, undefined> {
  for (const { slot, place } of slotsFor(grants, database, (entries) => entries.slots())) {
    const [entry] = slotEntries(slot, place, now);
    if (entry === undefined) continue;
    yield { entry, place };
    // The entry for the whole database comes last.
    if (place === placeName(database)) return;
  }
}

/** True if no table or column of a database is hidden from a user who may read it. */
export function seesSchema(snapshot: Snapshot, caller: Caller, database: string): boolean {
  const grants = effectiveGrants(snapshot, caller);
  const entries = grants.get(database) ?? grants.get(EVERY_DATABASE);
  return !(entries instanceof DatabaseGrants) && entries?.columns === undefined;
}

/** Stable codes, shown by audit, command line and HTTP. */
export type Reason =
  | "allowed"
  | "no_grant"
  | "role_insufficient"
  | "grant_expired"
  | "group_conflict"
  | "database_case_mismatch"
  | "token_database"
  | "token_read_only"
  | "name_case_mismatch"
  | "columns_required"
  | "column_denied"
  | "column_unqualified"
  | "limit_required"
  | "limit_too_high"
  | "where_required"
  | "too_many_changes"
  | "row_denied"
  | "attribute_missing"
  | "join_denied"
  | "name_too_wide"
  | "not_narrowable";

export type Denial = Exclude<Reason, "allowed">;

export interface Decision {
  readonly allowed: boolean;
  readonly reason: Reason;
  /** The role that counted, if any. The narrowest one if several tables or boundaries apply. */
  readonly role: EntryRole | undefined;
  /** The display name of the deciding entry. Several are separated by commas. */
  readonly entry: string | undefined;
  readonly boundary?: string;
  /** A sentence for the caller: what is wrong and what is allowed. */
  readonly message?: string;
  /** The row filters, in the order of the query's tables. */
  readonly filters?: readonly TableFilter[];
}

/** The row filter of a table, as conditions of the operation that reads or changes it. */
export interface TableFilter {
  readonly node: OperationNode;
  readonly conditions: readonly Term[];
  /** The conditions that the operation's own `where` does not already demand. */
  readonly added: readonly Term[];
}

/** A limit on some elements of a query together, kept by the engine. */
export interface ElementLimit extends CountedLimit {
  readonly elements: readonly number[];
}

export interface ApprovalRule {
  readonly entry?: string;
  readonly boundary?: string;
  readonly database: string;
  readonly permissions: readonly PermissionClass[];
  /** By default, everyone who may grant on the database. */
  readonly approvers?: readonly Holder[];
}

/** The decision on a whole query, allowed only if every access is. */
export interface QueryDecision {
  readonly allowed: boolean;
  /** The reason of the denied access, or `approval_required` if only an approval is missing. */
  readonly reason: Reason | "approval_required";
  /** One decision per access, up to and including the first denial. */
  readonly decisions: readonly Decision[];
  /** Limits that the database must enforce, since the numbers are unknown before the query runs. */
  readonly limits: readonly ElementLimit[];
  readonly bytewise?: readonly BytewiseColumns[];
  /** The rules that require approval, whether or not it was given. */
  readonly approvals: readonly ApprovalRule[];
  /** If approval is required: the deciding entries, row filters and boundaries, as text. */
  readonly basis?: string;
}

export interface QueryOrigin {
  readonly via: EntryPoint;
  readonly client?: string | undefined;
}

export interface DecisionContext extends QueryOrigin {
  readonly now: number;
  /** True if the engine runs the query, which enforces limits and compiles aliases. */
  readonly isEngine: boolean;
  readonly isApproved?: boolean;
}

export interface Objection {
  readonly reason: Denial;
  readonly message: string;
  /** Undefined if no single entry decides. */
  readonly entry?: DecidingEntry | undefined;
  readonly boundary?: string;
}

export function unnarrowable(what: string, entry: DecidingEntry | undefined): Objection {
  const message = `${what}: it cannot be limited to what the caller may read and change`;
  return { reason: "not_narrowable", message, entry };
}

export class Denied extends Error {
  readonly objection: Objection;

  constructor(objection: Objection) {
    super(objection.message);
    this.objection = objection;
  }
}

/** A boundary's display name, such as `mcp` or `mcp client=.. username=rita database=main`. */
export function boundaryName({ via, client, holder, database }: Boundary): string {
  const written = holder && writtenHolder(holder);
  const parts = Object.entries({ client, ...written, database }).filter(
    ([, value]) => value !== undefined,
  );
  return [via, ...parts.map(([key, value]) => `${key}=${value}`)].join(" ");
}

function concerns(
  snapshot: Snapshot,
  boundary: Boundary,
  caller: Caller,
  { via, client }: QueryOrigin,
): boolean {
  return (
    boundary.via === via &&
    (boundary.client === undefined || boundary.client === client) &&
    (boundary.holder === undefined || isMeant(snapshot, caller, boundary.holder))
  );
}

/** The boundaries that apply to a user on a database, whose name is compared without case. */
export function boundariesFor(
  snapshot: Snapshot,
  caller: Caller,
  database: string,
  context: QueryOrigin,
): readonly Boundary[] {
  const { boundaries } = snapshot;
  if (boundaries.length === 0) return boundaries;
  const folded = database.toLowerCase();
  return boundaries.filter(
    (boundary) =>
      concerns(snapshot, boundary, caller, context) &&
      (boundary.database === undefined || boundary.database.toLowerCase() === folded),
  );
}

/** All entries and boundaries that limit a user who comes this way, for any database. */
export function limitsFor(
  snapshot: Snapshot,
  caller: Caller,
  context: QueryOrigin,
): readonly Limits[] {
  if (!mayBeNarrowed(snapshot, caller, context)) return [];
  const boundaries = snapshot.boundaries.filter((one) => concerns(snapshot, one, caller, context));
  return [...allEntries(snapshot, caller), ...boundaries];
}

/** True if more than a role may limit the user's queries. */
export function mayBeNarrowed(snapshot: Snapshot, caller: Caller, context: QueryOrigin): boolean {
  return (
    effectiveGrants(snapshot, caller).isNarrowed ||
    snapshot.boundaries.some((boundary) => concerns(snapshot, boundary, caller, context))
  );
}

export interface DeniedDecision extends Decision {
  readonly reason: Denial;
}

/** The rights needed on a table, or on the database itself without one. */
export interface WantedRight {
  readonly table: string | undefined;
  readonly permissions: readonly PermissionClass[];
}

export interface GivenRight extends WantedRight {
  readonly entry: DecidingEntry;
  readonly matching: readonly DecidingEntry[];
}

export interface GivenRights<Right extends GivenRight = GivenRight> {
  readonly rights: readonly Right[];
  readonly boundaries: readonly Boundary[];
}

function lacking(permissions: readonly PermissionClass[], role: EntryRole, where: string) {
  const permission = permissions.find((wanted) => !roleAllows(role, wanted));
  if (permission === undefined) return undefined;
  const message = `${permission} is not among the rights of ${role} ${where}`;
  return { reason: "role_insufficient" as const, message };
}

export function conflictMessage(groups: readonly string[]): string {
  return `The entries of the groups ${groups.join(", ")} differ here: an entry of the user would decide`;
}

function requireEntry(
  grants: UserGrants,
  database: string,
  table: string | undefined,
  entry: DecidingEntry | undefined,
  now: number,
): DecidingEntry | Objection {
  const other = table === undefined ? undefined : findOtherSpelling(grants, database, table, now);
  if (other !== undefined) {
    const message = `The table ${table} differs only by case from ${other.spelling}: use that spelling`;
    return { reason: "name_case_mismatch", message, entry: other.entry };
  }
  if (entry === undefined) {
    const where = placeName(database, table);
    return { reason: "no_grant", message: `There is no grant for ${where}` };
  }
  if (entry.isExpired) {
    const message = `The grant for ${entry.name} has expired: request a new one`;
    return { reason: "grant_expired", message, entry };
  }
  if (entry.conflict === undefined) return entry;
  return { reason: "group_conflict", message: conflictMessage(entry.conflict), entry };
}

function checkRoles(
  permissions: readonly PermissionClass[],
  entry: DecidingEntry,
  boundaries: readonly Boundary[],
): Objection | undefined {
  const objection = lacking(permissions, entry.grant.role, `on ${entry.name}`);
  if (objection !== undefined) return { ...objection, entry };
  for (const boundary of boundaries) {
    if (boundary.role === undefined) continue;
    const name = boundaryName(boundary);
    const beyond = lacking(permissions, boundary.role, `under the boundary ${name}`);
    if (beyond !== undefined) return { ...beyond, entry, boundary: name };
  }
  return undefined;
}

export function deniedBy({ reason, message, entry, boundary }: Objection): DeniedDecision {
  return {
    allowed: false,
    reason,
    role: entry?.isExpired ? "None" : entry?.grant.role,
    entry: entry?.name,
    message,
    ...(boundary === undefined ? {} : { boundary }),
  };
}

/** The entries that match a table, found once for all elements of a query. */
export type KnownEntries = Map<string, readonly [DecidingEntry | Objection, DecidingEntry[]]>;

export function checkRights<Wanted extends WantedRight>(
  snapshot: Snapshot,
  subject: Subject,
  database: string,
  wanted: readonly Wanted[],
  context: QueryOrigin & { readonly now: number },
  known: KnownEntries = new Map(),
): GivenRights<Wanted & GivenRight> | DeniedDecision {
  for (const { permissions } of wanted) {
    for (const permission of permissions) {
      const reason = nameDenial(snapshot, subject, permission, database);
      if (reason !== undefined)
        return { allowed: false, reason, role: undefined, entry: undefined };
    }
  }
  const grants = effectiveGrants(snapshot, subject, context.now);
  const boundaries = boundariesFor(snapshot, subject, database, context);
  const rights: (Wanted & GivenRight)[] = [];
  for (const one of wanted) {
    const { table, permissions } = one;
    const place = JSON.stringify([database, table]);
    let found = known.get(place);
    if (found === undefined) {
      const matching = matchingEntries(grants, database, table, context.now);
      found = [requireEntry(grants, database, table, matching[0], context.now), matching];
      known.set(place, found);
    }
    const [entry, matching] = found;
    if ("reason" in entry) return deniedBy(entry);
    const objection = checkRoles(permissions, entry, boundaries);
    if (objection !== undefined) return deniedBy(objection);
    rights.push({ ...one, entry, matching });
  }
  return { rights, boundaries };
}

export function granted({ rights, boundaries }: GivenRights): Decision {
  let role = rights[0]?.entry.grant.role ?? "None";
  let names = rights[0]?.entry.name ?? "";
  for (const { entry } of rights) {
    if (outranks(role, entry.grant.role)) role = entry.grant.role;
  }
  if (rights.length > 1) names = [...new Set(rights.map(({ entry }) => entry.name))].join(", ");
  for (const { role: most = role } of boundaries) if (outranks(role, most)) role = most;
  return { allowed: true, reason: "allowed", role, entry: names };
}

export interface CountedWindow {
  /** Names the limit and the user. A changed limit starts another window. */
  readonly key: string;
  readonly limit: RateLimit;
  readonly points: number;
}

export interface RateWindow extends CountedWindow {
  readonly boundary: string;
}

export interface RequestCount {
  readonly counted: number;
  /** Seconds until there is room again, or 0 if the request passes. */
  readonly retryAfter: number;
}

/** Counts in a window shared by all processes and replicas of a gateway. */
export type CountRequests = (window: CountedWindow) => Promise<RequestCount>;

/**
 * @param databases how many elements of a query use each, counted by the boundaries for that
 * database. Undefined for a request that is not a query, which counts once in boundaries without a
 * database.
 */
export function findRateWindows(
  snapshot: Snapshot,
  caller: Caller,
  origin: QueryOrigin,
  databases: ReadonlyMap<string, number> | undefined,
): RateWindow[] {
  if (!snapshot.boundaries.some(({ rateLimit }) => rateLimit !== undefined)) return [];
  const windows = new Map<string, RateWindow>();
  for (const [database, times] of databases ?? new Map([["", 1]])) {
    for (const boundary of boundariesFor(snapshot, caller, database, origin)) {
      const { rateLimit: limit } = boundary;
      if (limit === undefined) continue;
      const name = boundaryName(boundary);
      const key = `${name} ${limit.count}/${limit.windowMs} ${caller.username}`;
      const points = (windows.get(key)?.points ?? 0) + times;
      windows.set(key, { key, boundary: name, limit, points });
    }
  }
  return [...windows.values()];
}

/** The conditions that row filters add to the operations of a query. */
export function filterAdditions(decisions: readonly Decision[]): Addition[] {
  const filters = decisions.flatMap((decision) => decision.filters ?? []);
  if (filters.length === 0) return [];
  const byNode = Map.groupBy(filters, ({ node }) => node);
  return Array.from(byNode, ([node, some]) => ({
    node,
    conditions: some.flatMap(({ added }) => added),
  })).filter(({ conditions }) => conditions.length > 0);
}
