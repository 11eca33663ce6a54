import { writtenUser } from "../access/grant.ts";
import { namesIn, type Replacement, recordsOf, type UserRecords } from "../access/record-change.ts";
import {
  type AccessRecords,
  type TomlTable,
  writtenBoundary,
  writtenEntry,
} from "../access/records.ts";
import type { Snapshot } from "../access/snapshot.ts";
import { renderName, renderValue } from "../toml/toml.ts";
import { writeExact, writtenRecords } from "./log.ts";

/** The first line of an export: this text, followed by the version. */
const versionMark = "# access version ";

function renderTable(name: string, table: object): string {
  const lines = Object.entries(table).map(
    ([key, value]) => `${renderName(key)} = ${renderValue(value)}`,
  );
  return [`[[${name}]]`, ...lines, ""].join("\n");
}

export function allRecords(snapshot: Snapshot): UserRecords[] {
  return Array.from(namesIn(snapshot), (name) => recordsOf(snapshot, name));
}

/** Renders the state as an access file that begins with its version. */
export function renderAccess(
  snapshot: Snapshot,
  userOf: (user: NonNullable<UserRecords["user"]>) => TomlTable = writtenUser,
): string {
  const records = allRecords(snapshot);
  const users = records.flatMap(({ user }) => (user === undefined ? [] : [userOf(user)]));
  const grants = records.flatMap(({ grants }) => grants);
  return [
    `${versionMark}${snapshot.version}\n`,
    ...users.map((user) => renderTable("users", user)),
    ...grants.map((grant) => renderTable("acl", writtenEntry(grant))),
    ...snapshot.boundaries.map((boundary) => renderTable("boundaries", writtenBoundary(boundary))),
  ].join("\n");
}

export function versionOf(text: string): string | undefined {
  const [first = ""] = text.split("\n", 1);
  return first.startsWith(versionMark) ? first.slice(versionMark.length).trim() : undefined;
}

/** A canonical text, to compare two records. */
function textOf(records: UserRecords): string {
  return writeExact(writtenRecords(records));
}

export function replacementBy(
  current: Snapshot,
  { users, grants, boundaries }: AccessRecords,
): Replacement {
  const known = new Map(users.map((user) => [user.username, user]));
  const own = Map.groupBy(grants, ({ username }) => username);
  const names = new Set([...known.keys(), ...own.keys(), ...namesIn(current)]);
  const differing = Array.from(names, (name): [string, UserRecords] => [
    name,
    { user: known.get(name), grants: own.get(name) ?? [] },
  ]).filter(([name, records]) => textOf(records) !== textOf(recordsOf(current, name)));
  const asText = (some: Snapshot["boundaries"]) => writeExact(some.map(writtenBoundary));
  const isSame = asText(boundaries) === asText(current.boundaries);
  return { users: new Map(differing), ...(isSame ? {} : { boundaries }) };
}
