import * as z from "zod";
import {
  type Boundary,
  holderText,
  readHolder,
  writtenGroup,
  writtenUser,
} from "../../core/access/grant.ts";
import type { HolderRecords, Replacement } from "../../core/access/record-change.ts";
import {
  type RecordProblem,
  readBoundary,
  readGrant,
  readGroup,
  readUser,
  type TomlTable,
  writtenBoundary,
  writtenEntry,
} from "../../core/access/records.ts";
import { lineShape, type Revocation } from "../../core/identity/revocations.ts";
import type { IssuedToken } from "../../core/identity/token.ts";
import { readIssuedToken, writtenToken } from "../../core/identity/token-file.ts";
import { isObject } from "../../core/json/exact.ts";
import type { Author } from "../../core/observe/audit-line.ts";
import type { Query } from "./database.ts";

export class StoreContentError extends Error {}

function fail({ table, key, reason }: RecordProblem): never {
  throw new StoreContentError(
    `the store contains an invalid record of ${table}: ${key ?? ""}: ${reason}`,
  );
}

export function writtenRecords({ user, group, grants }: HolderRecords): TomlTable {
  return {
    ...(user === undefined ? {} : { user: writtenUser(user) }),
    ...(group === undefined ? {} : { group: writtenGroup(group) }),
    grants: grants.map(writtenEntry),
  };
}

function malformed(what: string): never {
  throw new StoreContentError(`${what} in the store does not have the format of this version`);
}

function readList<Item>(
  value: unknown,
  read: (one: unknown, index: number, report: (problem: RecordProblem) => void) => Item | undefined,
): Item[] {
  if (!Array.isArray(value)) malformed("a list of records");
  return value.map((one, index) => read(one, index, fail) ?? malformed("a record"));
}

export function parseRecords(value: unknown): HolderRecords {
  if (!isObject(value)) malformed("the record of a name");
  const { user, group, grants } = value;
  return {
    user: user === undefined ? undefined : (readUser(user, 0, fail) ?? malformed("a user")),
    ...(group === undefined ? {} : { group: readGroup(group, 0, fail) ?? malformed("a group") }),
    grants: readList(grants, readGrant),
  };
}

export function parseBoundaries(value: unknown): Boundary[] {
  return readList(value, readBoundary);
}

/** An entry of the append-only log. Each version is one change, and there are no gaps. */
export type StoredChange =
  | { readonly kind: "access"; readonly replacement: Replacement }
  | { readonly kind: "revocation"; readonly revocation: Revocation }
  | { readonly kind: "token"; readonly token: IssuedToken }
  /** Keys have their own table, so that no key material stays in the log. */
  | { readonly kind: "keys"; readonly ring: string };

/**
 * Form 2 has groups, and names with the characters that issuers use; form 3 has `same_as`; form 4
 * has issued tokens.
 */
export const FORM: number = 4;

const nameOfForm1 = /^(?!group:)(?:[A-Za-z0-9_-]{1,63}:)?(?!\.{1,2}$)[A-Za-z0-9._@-]{1,64}$/;

/**
 * The lowest log form that reads a change. A change with new content gets a higher form, which is
 * written only once every running replica can read it.
 */
export function neededForm(change: StoredChange): number {
  if (change.kind === "keys") return 1;
  if (change.kind === "token") return 4;
  if (change.kind === "revocation") {
    const { revocation } = change;
    return "jti" in revocation || nameOfForm1.test(revocation.user) ? 1 : 2;
  }
  const { records, boundaries = [] } = change.replacement;
  if (records.values().some(({ user }) => user?.sameAs !== undefined)) return 3;
  const grants = records.values().flatMap((own) => own.grants);
  const holders = [
    ...records.keys(),
    ...[...grants, ...boundaries].flatMap(({ holder = [], approvers = [] }) =>
      [holder, approvers].flat(),
    ),
  ];
  return holders.every((holder) => nameOfForm1.test(holderText(holder))) ? 1 : 2;
}

export interface LogEntry {
  readonly version: number;
  /** Distinguishes two changes with the same version, after a failover that lost one of them. */
  readonly id: string;
  readonly author: Author;
  readonly change: StoredChange;
}

export const authorShape = z.object({
  kind: z.enum(["api", "console", "cli", "store"]),
  name: z.string(),
});
const ringShape = z.object({ ring: z.string() });
const replacementShape = z.object({ users: z.unknown(), boundaries: z.unknown().optional() });

export function writtenChange(change: StoredChange): object {
  if (change.kind === "revocation") return change.revocation;
  if (change.kind === "keys") return { ring: change.ring };
  if (change.kind === "token") return writtenToken(change.token);
  return writtenReplacement(change.replacement);
}

export function writtenReplacement({ records, boundaries }: Replacement): object {
  const users = Array.from(records, ([holder, own]) => [holderText(holder), writtenRecords(own)]);
  return {
    users: Object.fromEntries(users),
    ...(boundaries === undefined ? {} : { boundaries: boundaries.map(writtenBoundary) }),
  };
}

function parseChange(kind: string, data: unknown): StoredChange {
  if (kind === "revocation") return { kind, revocation: lineShape.parse(data) };
  if (kind === "token") return { kind, token: readIssuedToken(data) };
  if (kind === "keys") return { kind, ring: ringShape.parse(data).ring };
  return { kind: "access", replacement: parseReplacement(data) };
}

export function parseReplacement(data: unknown): Replacement {
  const { users, boundaries } = replacementShape.parse(data);
  if (!isObject(users)) malformed("a change");
  const records = Object.entries(users).map(
    ([name, own]) => [readHolder(name), parseRecords(own)] as const,
  );
  return {
    records: new Map(records),
    ...(boundaries === undefined ? {} : { boundaries: parseBoundaries(boundaries) }),
  };
}

const entryShape = z.object({
  version: z.int(),
  id: z.string(),
  author: authorShape,
  kind: z.string(),
  data: z.unknown(),
});

export function parseEntry(row: unknown): LogEntry {
  const { kind, data, ...entry } = entryShape.parse(row);
  return { ...entry, change: parseChange(kind, data) };
}

export async function readEntries(query: Query, after: number): Promise<LogEntry[]> {
  const sql = `select version, id, author, kind, data from gatehouse.log
    where version > $1 order by version`;
  return (await query(sql, [after])).map(parseEntry);
}

const headShape = z
  .object({
    version: z.int(),
    id: z.string(),
    /** The version of the last change of users, grants or boundaries. */
    access_version: z.int(),
    form: z.int(),
  })
  .transform(({ access_version: accessVersion, ...head }) => ({ ...head, accessVersion }));

export type Head = Readonly<z.infer<typeof headShape>>;

/** @param isWriter locks the row against other writers until the transaction ends */
export async function readHead(query: Query, isWriter = false): Promise<Head> {
  const lock = isWriter ? " for update" : "";
  const [row] = await query(`select version, id, access_version, form from gatehouse.head${lock}`);
  return headShape.parse(row);
}

/**
 * Writes JSON as stored: a whole number that a double cannot hold exactly as `{"integer":
 * "9007199254740993"}`. No record contains an object of that form otherwise.
 */
export function writeExact(value: unknown): string {
  return JSON.stringify(value, (_key, member: unknown) =>
    typeof member === "bigint" ? { integer: String(member) } : member,
  );
}
