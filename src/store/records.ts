import { type Boundary, writtenUser } from "../access/grant.ts";
import type { UserRecords } from "../access/record-change.ts";
import {
  type RecordProblem,
  readBoundary,
  readGrant,
  readUser,
  type TomlTable,
  writtenEntry,
} from "../access/records.ts";

/** This release cannot read the content of the store. */
export class StoreContentError extends Error {}

function fail({ table, key, reason }: RecordProblem): never {
  throw new StoreContentError(`a record of ${table} in the store: ${key ?? ""}: ${reason}`);
}

export function writtenRecords({ user, grants }: UserRecords): TomlTable {
  return {
    ...(user === undefined ? {} : { user: writtenUser(user) }),
    grants: grants.map(writtenEntry),
  };
}

function isTable(value: unknown): value is TomlTable {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

function malformed(what: string): never {
  throw new StoreContentError(`${what} in the store is not as this version writes it`);
}

function readList<Item>(
  value: unknown,
  read: (one: unknown, index: number, report: (problem: RecordProblem) => void) => Item | undefined,
): Item[] {
  if (!Array.isArray(value)) malformed("a list of records");
  return value.map((one, index) => read(one, index, fail) ?? malformed("a record"));
}

/** @throws StoreContentError */
export function parseRecords(value: unknown): UserRecords {
  if (!isTable(value)) malformed("the record of a name");
  const { user, grants } = value;
  return {
    user: user === undefined ? undefined : (readUser(user, 0, fail) ?? malformed("a user")),
    grants: readList(grants, readGrant),
  };
}

/** @throws StoreContentError */
export function parseBoundaries(value: unknown): Boundary[] {
  return readList(value, readBoundary);
}

/** Parses the records of several names. A name without any records left has no entries. */
export function parseUsers(value: unknown): Map<string, UserRecords> {
  if (!isTable(value)) malformed("a change");
  return new Map(Object.entries(value).map(([name, records]) => [name, parseRecords(records)]));
}
