import type { PermissionClass } from "../query/permissions.ts";
import {
  DatabaseGrants,
  entriesIn,
  type NamedPlace,
  type Place,
  type UserGrants,
} from "./entries.ts";
import type {
  Boundary,
  EntryPoint,
  Grant,
  Limits,
  Literal,
  RateLimit,
  RowComparison,
} from "./grant.ts";
import { type EntryRole, EVERY_DATABASE, outranks, roleAllows } from "./roles.ts";
import { grantsOf, type Snapshot } from "./snapshot.ts";
import { judgeName, type Subject } from "./subject.ts";

/** The one entry that decides on a table, or on what is no table's. */
export interface DecidingEntry {
  readonly grant: Grant;
  /** As people call it: `main`, `*`, `main.tickets`, `*.customer_*`. */
  readonly name: string;
  /** True if its time is over and no other entry holds its place: it decides as `None`. */
  readonly isLapsed: boolean;
}

function isOver({ expires }: Grant, now: number): boolean {
  return expires !== undefined && expires <= now;
}

/** The entry of a place that is in force; what has lapsed is in force as `None` if it is alone. */
function entryAt(
  { lasting, temporary }: Place,
  name: string,
  now: number,
): DecidingEntry | undefined {
  if (temporary !== undefined && !isOver(temporary, now))
    return { grant: temporary, name, isLapsed: false };
  if (lasting !== undefined) return { grant: lasting, name, isLapsed: false };
  return temporary && { grant: temporary, name, isLapsed: true };
}

/**
 * The places of a user's entries for a database and for `*`, in this order, and of each those that
 * `choose` takes; one with a single entry for all of it is that place.
 */
function* placesFor(
  grants: UserGrants,
  database: string,
  choose: (held: DatabaseGrants) => Iterable<NamedPlace>,
): Generator<{ readonly place: Place; readonly name: string }, undefined> {
  for (const at of database === EVERY_DATABASE ? everywhere : [database, EVERY_DATABASE]) {
    const held = grants.get(at);
    if (held instanceof DatabaseGrants) {
      for (const [table, place] of choose(held)) {
        yield { place, name: table === undefined ? at : `${at}.${table}` };
      }
    } else if (held !== undefined) {
      yield { place: { lasting: held, temporary: undefined }, name: at };
    }
  }
}

const everywhere = [EVERY_DATABASE];

/**
 * Every entry that fits a table of a database, the one that decides first: of those for this
 * database, then of those for `*`, the one that names the table, the one whose pattern fits, and the
 * one for the whole of it. Without a table, the last of the three each.
 *
 * @param now epoch milliseconds
 */
function fittingEntries(
  grants: UserGrants,
  database: string,
  table: string | undefined,
  now: number,
): DecidingEntry[] {
  const entries: DecidingEntry[] = [];
  for (const { place, name } of placesFor(grants, database, (held) => held.placesOf(table))) {
    const entry = entryAt(place, name, now);
    if (entry === undefined) continue;
    entries.push(entry);
    // Behind a temporary one; one that has lapsed and has given way fits no more.
    const { lasting } = place;
    if (lasting !== undefined && lasting !== entry.grant) {
      entries.push({ grant: lasting, name, isLapsed: false });
    }
  }
  return entries;
}

/** The one of the fitting entries that decides. */
export function decidingEntry(
  snapshot: Snapshot,
  username: string,
  database: string,
  table: string | undefined,
  now: number,
): DecidingEntry | undefined {
  return fittingEntries(grantsOf(snapshot, username), database, table, now)[0];
}

/** A table or pattern in another case than a table is written in, and its entry. */
interface OtherSpelling {
  readonly spelling: string;
  readonly entry: DecidingEntry;
}

/** How an entry of the user, for this database or for `*`, spells a table otherwise, if one does. */
export function otherSpellingOf(
  grants: UserGrants,
  database: string,
  table: string,
  now: number,
): OtherSpelling | undefined {
  for (const place of [database, EVERY_DATABASE]) {
    const held = grants.get(place);
    if (!(held instanceof DatabaseGrants)) continue;
    const spelling = held.otherSpelling(table);
    if (spelling === undefined) continue;
    const named = held.placeOf(spelling);
    const entry = named && entryAt(named, `${place}.${spelling}`, now);
    if (entry !== undefined) return { spelling, entry };
  }
  return undefined;
}

/**
 * The entries in force through which a user may reach something of a database: those for it, and
 * those for `*` unless one is for the whole of it. What has lapsed and is alone in its place is
 * among them.
 */
export function* entriesInForce(
  grants: UserGrants,
  database: string,
  now: number,
): Generator<DecidingEntry, undefined> {
  for (const { place, name } of placesFor(grants, database, (held) => held.places())) {
    const entry = entryAt(place, name, now);
    if (entry !== undefined) yield entry;
    // Of each the whole comes last.
    if (entry !== undefined && name === database) return;
  }
}

/** True if no table and no column of a database is hidden from a user who may read it. */
export function seesSchema(snapshot: Snapshot, username: string, database: string): boolean {
  const grants = grantsOf(snapshot, username);
  const held = grants.get(database) ?? grants.get(EVERY_DATABASE);
  return !(held instanceof DatabaseGrants) && held?.columns === undefined;
}

/** The answers to questions of access, as data: audit, command line and HTTP show the same. */

/** Why a decision came out as it did; the codes are stable. */
export type Reason =
  | "allowed"
  | "no_grant"
  | "role_insufficient"
  | "grant_expired"
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
  | "not_narrowable";

/** Why something is denied. */
export type Denial = Exclude<Reason, "allowed">;

/** The answer to one question of access. */
export interface Decision {
  readonly allowed: boolean;
  readonly reason: Reason;
  /** The role that counts there, if the user has one; of several tables and boundaries the narrowest. */
  readonly role: EntryRole | undefined;
  /** Which entry decided, such as `main`, `*`, `main.tickets`, `*.customer_*`; several with commas. */
  readonly entry: string | undefined;
  /** The permission boundary that denies it, if one does. */
  readonly boundary?: string;
  /** A sentence that says what is wrong and what is allowed, for the caller. */
  readonly message?: string;
  /** The conditions, as JSON, that all rows fulfil which it reads or changes. */
  readonly filters?: readonly string[];
  /** Those of them that its own `where` does not demand already. */
  readonly additions?: readonly string[];
}

/** What some elements of a query may do together, as `gatehouse engine` is told it. */
export interface QueryLimit {
  /** The places in a Batch; 0 for a query that is none. */
  readonly elements: readonly number[];
  /** Rows inserted, updated or deleted at most. */
  readonly changes?: number;
  /** Rows of `returning` and Preview answered at most. */
  readonly rows?: number;
  /** The columns of a row that a Preview shows. */
  readonly columns?: readonly string[];
}

/** What `gatehouse engine` compares by bytes for a caller, beside the column's own comparison. */
export interface BytewiseColumns {
  readonly database: string;
  readonly table: string;
  /** The columns of row filters and of `require_where`. */
  readonly bytewise: readonly string[];
  /** The row filter that inserted and updated rows must satisfy. */
  readonly written?: readonly {
    readonly column: string;
    readonly cmp: RowComparison;
    readonly value: Literal | readonly Literal[];
  }[];
}

/** A rule that asks for somebody's approval. */
export interface ApprovalRule {
  /** The entry or the boundary that asks. */
  readonly entry?: string;
  readonly boundary?: string;
  readonly database: string;
  /** The rights that are used and need it. */
  readonly permissions: readonly PermissionClass[];
  /** Who approves; if it is left out, who may grant on the database. */
  readonly approvers?: readonly string[];
}

/** The decision on a whole query: allowed only if every access in it is. */
export interface QueryDecision {
  readonly allowed: boolean;
  /** That of the access that is denied; `approval_required` if all pass but for an approval. */
  readonly reason: Reason | "approval_required";
  /** One decision an access, up to and including the first that is denied. */
  readonly decisions: readonly Decision[];
  /** What the database must keep, since it cannot be known before. */
  readonly limits: readonly QueryLimit[];
  /** What the database must compare by bytes. */
  readonly bytewise?: readonly BytewiseColumns[];
  /** The rules that ask for approval, whether or not it was given. */
  readonly approvals: readonly ApprovalRule[];
  /** Where one is asked for: the entries, row filters and boundaries that decide, as text. */
  readonly basis?: string;
}

/** How a query came. */
export interface QueryOrigin {
  readonly via: EntryPoint;
  /** The OAuth client by which it came. */
  readonly client?: string | undefined;
}

/** How a query came, and what is behind. */
export interface DecisionContext extends QueryOrigin {
  /** Epoch milliseconds. */
  readonly now: number;
  /** True if `gatehouse engine` is behind, which keeps limits and compiles aliases. */
  readonly isEngine: boolean;
  /** True if what asks for approval was approved. */
  readonly isApproved?: boolean;
}

/** Why an access is denied, and by which entry or boundary. */
export interface Objection {
  readonly reason: Denial;
  readonly message: string;
  /** Undefined if there is none, or if no single one does. */
  readonly entry?: DecidingEntry | undefined;
  readonly boundary?: string;
}

/** Permission boundaries: which of them a query meets. */

/** A boundary as people call it: `mcp`, `mcp client=.. username=rita database=main`. */
export function boundaryName({ via, client, username, database }: Boundary): string {
  const parts = Object.entries({ client, username, database }).filter(
    ([, value]) => value !== undefined,
  );
  return [via, ...parts.map(([key, value]) => `${key}=${value}`)].join(" ");
}

function concerns(boundary: Boundary, username: string, { via, client }: QueryOrigin): boolean {
  return (
    boundary.via === via &&
    (boundary.client === undefined || boundary.client === client) &&
    (boundary.username === undefined || boundary.username === username)
  );
}

/** The boundaries for a user on a database, in whatever case that is written. */
export function boundariesFor(
  { boundaries }: Snapshot,
  username: string,
  database: string,
  context: QueryOrigin,
): readonly Boundary[] {
  if (boundaries.length === 0) return boundaries;
  const folded = database.toLowerCase();
  return boundaries.filter(
    (boundary) =>
      concerns(boundary, username, context) &&
      (boundary.database === undefined || boundary.database.toLowerCase() === folded),
  );
}

/** All that limits a user who comes this way: entries and boundaries, wherever they are for. */
export function rulesFor(
  snapshot: Snapshot,
  username: string,
  context: QueryOrigin,
): readonly Limits[] {
  if (!mayBeNarrowed(snapshot, username, context)) return [];
  const boundaries = snapshot.boundaries.filter((one) => concerns(one, username, context));
  return [...entriesIn(grantsOf(snapshot, username)), ...boundaries];
}

/**
 * True if a user's queries may be judged by more than a role on a database: then they have to be
 * scanned in detail. Looks nothing up but the user.
 */
export function mayBeNarrowed(snapshot: Snapshot, username: string, context: QueryOrigin): boolean {
  return (
    grantsOf(snapshot, username).isNarrowed ||
    (snapshot.boundaries.length > 0 &&
      snapshot.boundaries.some((boundary) => concerns(boundary, username, context)))
  );
}

/** Judges rights on a table or a database, by the entry that decides and the boundaries around it. */

/** A decision that says no. */
export interface DeniedDecision extends Decision {
  readonly reason: Denial;
}

/** A table, and the rights that are needed on it; on the database itself without one. */
export interface WantedRight {
  readonly table: string | undefined;
  readonly permissions: readonly PermissionClass[];
}

/** A right that is given, the entry that gives it, and all that fit there. */
export interface GivenRight extends WantedRight {
  readonly entry: DecidingEntry;
  readonly fitting: readonly DecidingEntry[];
}

/** Rights that are given on one database, and the boundaries around them. */
export interface GivenRights {
  readonly rights: readonly GivenRight[];
  readonly boundaries: readonly Boundary[];
}

function insufficient(permission: PermissionClass, where: string, role: EntryRole): Objection {
  const message = `${permission} is not among the rights of ${role} on ${where}`;
  return { reason: "role_insufficient", message };
}

/** The entry that decides on a table, in force and in this spelling, or why there is none. */
function requireEntry(
  grants: UserGrants,
  database: string,
  table: string | undefined,
  entry: DecidingEntry | undefined,
  now: number,
): DecidingEntry | Objection {
  const other = table === undefined ? undefined : otherSpellingOf(grants, database, table, now);
  if (other !== undefined) {
    const message = `The table ${table} differs by case alone from ${other.spelling}: write it so`;
    return { reason: "name_case_mismatch", message, entry: other.entry };
  }
  if (entry === undefined) {
    const where = table === undefined ? database : `${database}.${table}`;
    return { reason: "no_grant", message: `There is no grant for ${where}` };
  }
  if (!entry.isLapsed) return entry;
  const message = `The grant for ${entry.name} has expired: ask for a new one`;
  return { reason: "grant_expired", message, entry };
}

/** What is wrong with the use of some rights by a role and within boundaries, if anything is. */
function judgeRoles(
  permissions: readonly PermissionClass[],
  entry: DecidingEntry,
  boundaries: readonly Boundary[],
): Objection | undefined {
  const { role } = entry.grant;
  const lacking = permissions.find((permission) => !roleAllows(role, permission));
  if (lacking !== undefined) return { ...insufficient(lacking, entry.name, role), entry };
  for (const boundary of boundaries) {
    const most = boundary.role;
    if (most === undefined) continue;
    const beyond = permissions.find((permission) => !roleAllows(most, permission));
    if (beyond === undefined) continue;
    const name = boundaryName(boundary);
    return { ...insufficient(beyond, `what comes by ${name}`, most), entry, boundary: name };
  }
  return undefined;
}

/** The decision that an objection comes to. */
export function denied({ reason, message, entry, boundary }: Objection): DeniedDecision {
  return {
    allowed: false,
    reason,
    role: entry?.isLapsed ? "None" : entry?.grant.role,
    entry: entry?.name,
    message,
    ...(boundary === undefined ? {} : { boundary }),
  };
}

/** The rights on a database, if all are given, or the decision that denies them. */
export function judgeRights(
  snapshot: Snapshot,
  subject: Subject,
  database: string,
  wanted: readonly WantedRight[],
  context: QueryOrigin & { readonly now: number },
): GivenRights | DeniedDecision {
  const { username } = subject;
  for (const { permissions } of wanted) {
    for (const permission of permissions) {
      const reason = judgeName(snapshot, subject, permission, database);
      if (reason !== undefined)
        return { allowed: false, reason, role: undefined, entry: undefined };
    }
  }
  const grants = grantsOf(snapshot, username);
  const boundaries = boundariesFor(snapshot, username, database, context);
  const rights: GivenRight[] = [];
  for (const { table, permissions } of wanted) {
    const fitting = fittingEntries(grants, database, table, context.now);
    const entry = requireEntry(grants, database, table, fitting[0], context.now);
    if ("reason" in entry) return denied(entry);
    const objection = judgeRoles(permissions, entry, boundaries);
    if (objection !== undefined) return denied(objection);
    rights.push({ table, permissions, entry, fitting });
  }
  return { rights, boundaries };
}

/** The decision that says yes, by the narrowest of the roles that count. */
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

/** How many requests boundaries let through: which windows a request counts in. */

/** A window in which requests are counted. */
export interface CountedWindow {
  /** What is counted, of whom; another limit begins another window. */
  readonly key: string;
  readonly limit: RateLimit;
  /** How much is counted now. */
  readonly points: number;
}

/** A window in which requests of one user are counted. */
export interface RateWindow extends CountedWindow {
  /** The boundary, as people call it. */
  readonly boundary: string;
  /** True if requests on one database alone are counted. */
  readonly isOfDatabase: boolean;
}

/** What a window comes to once a request was counted in it. */
export interface RequestCount {
  readonly counted: number;
  /** Seconds after which there is room again, 0 if the request passes. */
  readonly retryAfter: number;
}

/** Counts in a window, over all processes of a gateway, and over all replicas. */
export type CountRequests = (window: CountedWindow) => Promise<RequestCount>;

/**
 * The windows in which a request counts.
 *
 * @param databases one for each element of a query: a boundary for a database counts those on it;
 *   undefined for a request that is none, which counts once where no database is meant
 */
export function rateWindowsOf(
  snapshot: Snapshot,
  username: string,
  origin: QueryOrigin,
  databases: readonly string[] | undefined,
): RateWindow[] {
  if (!snapshot.boundaries.some(({ rateLimit }) => rateLimit !== undefined)) return [];
  const windows = new Map<string, RateWindow>();
  for (const database of databases ?? [""]) {
    for (const boundary of boundariesFor(snapshot, username, database, origin)) {
      const { rateLimit: limit } = boundary;
      if (limit === undefined) continue;
      const name = boundaryName(boundary);
      const key = `${name} ${limit.count}/${limit.windowMs} ${username}`;
      const isOfDatabase = boundary.database !== undefined;
      const points = (windows.get(key)?.points ?? 0) + 1;
      windows.set(key, { key, boundary: name, limit, isOfDatabase, points });
    }
  }
  return [...windows.values()];
}
