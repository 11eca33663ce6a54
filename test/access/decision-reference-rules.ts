/** How the second reading of the contract looks into entries: lists that are filtered. */
import type {
  AttributeValue,
  Grant,
  Limits,
  Literal,
  RowCondition,
} from "../../src/access/grant.ts";
import type { Json } from "./decision-queries.ts";
import { isWhole } from "./decision-reference-query.ts";
import { now, username, type World } from "./decision-worlds.ts";

export const gives: Record<string, readonly string[]> = {
  Owner: [
    "SELECT",
    "INSERT",
    "UPDATE",
    "DELETE",
    "CREATE",
    "DROP",
    "CREATE DATABASE",
    "DROP DATABASE",
  ],
  DbAdmin: ["SELECT", "INSERT", "UPDATE", "DELETE", "CREATE", "DROP"],
  ReadWrite: ["SELECT", "INSERT", "UPDATE", "DELETE"],
  ReadOnly: ["SELECT"],
  None: [],
};
export const needs: Record<string, readonly string[]> = {
  Select: ["SELECT"],
  Insert: ["INSERT"],
  Update: ["UPDATE"],
  Delete: ["DELETE"],
  Upsert: ["INSERT", "UPDATE"],
  CreateTable: ["CREATE"],
  DropTable: ["DROP"],
  CreateDatabase: ["CREATE DATABASE"],
  DropDatabase: ["DROP DATABASE"],
  Truncate: ["DELETE"],
};

export const plain = (name: string) => name.normalize("NFKD").replace(/\p{M}/gu, "").toLowerCase();
export const differsByForm = (one: string, other: string) =>
  one !== other && plain(one) === plain(other);
export const start = (pattern: string) => pattern.slice(0, -1);
export const isPattern = (text: string) => text.endsWith("*");

/** Entries of the same place, the first place that is held. */
function place({ grants }: World, database: string, table: string | undefined): readonly Grant[] {
  const isNamed = ({ tables }: Grant) => tables?.some((name) => name === table) === true;
  const isFitted = ({ tables }: Grant) =>
    tables?.some((name) => isPattern(name) && table?.startsWith(start(name))) === true;
  const isWhole = ({ tables }: Grant) => tables === undefined;
  return (
    [database, "*"]
      .flatMap((on) =>
        [isNamed, isFitted, isWhole].map((fits) =>
          grants.filter((grant) => grant.database === on && fits(grant)),
        ),
      )
      .find((found) => found.length > 0) ?? []
  );
}

/** The entry that decides; `lapsed` if what is there is over. */
export function decider(
  world: World,
  database: string,
  table: string | undefined,
): Grant | "lapsed" | undefined {
  const found = place(world, database, table);
  if (found.length === 0) return undefined;
  return (
    found.find(({ expires }) => expires !== undefined && expires > now) ??
    found.find(({ expires }) => expires === undefined) ??
    "lapsed"
  );
}

const narrowingKeys = [
  "tables",
  "columns",
  "writableColumns",
  "rowFilter",
  "requireWhere",
  "maxRows",
  "maxChanges",
] as const;

/** Some table or the database itself is decided by an entry that says more than a role. */
export function isNarrowed(world: World, boundaries: readonly Limits[], database: string): boolean {
  const written = world.grants.flatMap(({ tables = [] }) => tables);
  const places = [
    undefined,
    ...written.map((name) => (isPattern(name) ? `${start(name)}\u0000` : name)),
  ];
  const deciding = places.map((table) => decider(world, database, table));
  return (
    boundaries.some(
      ({ maxRows, maxChanges }) => maxRows !== undefined || maxChanges !== undefined,
    ) ||
    deciding.some(
      (grant) =>
        grant === "lapsed" ||
        grant?.role === "None" ||
        (grant !== undefined && narrowingKeys.some((key) => grant[key] !== undefined)),
    )
  );
}

/** The filter's conditions with attributes; undefined if one is missing. */
export function resolved({ attributes }: World, filter: readonly RowCondition[]) {
  const meaning = (literal: Literal): AttributeValue | undefined => {
    if (typeof literal !== "string" || !literal.startsWith("@")) return literal;
    if (literal.startsWith("@@")) return literal.slice(1);
    return literal === "@username" ? username : attributes[literal.slice(1)];
  };
  const found = filter.map(({ column, cmp, value }) => {
    const meant = Array.isArray(value) ? value.map(meaning) : meaning(value as Literal);
    const isList = Array.isArray(meant);
    if (meant === undefined || isList !== (cmp === "IN")) return undefined;
    if (isList && meant.some((one) => one === undefined || Array.isArray(one))) return undefined;
    if (["<", ">", "<=", ">="].includes(cmp) && !isWhole(meant)) return undefined;
    return { column, cmp, value: meant };
  });
  return found.some((one) => one === undefined)
    ? undefined
    : found.filter((one) => one !== undefined);
}

export type Resolved = NonNullable<ReturnType<typeof resolved>>[number];

export function holds({ cmp, value }: Resolved, cell: Json | undefined): boolean {
  const isSame = (one: unknown) =>
    typeof one === typeof cell && one === cell && (typeof one !== "number" || isWhole(one));
  if (cell === null || cell === undefined) return false;
  if (cmp === "IN") return Array.isArray(value) && value.some(isSame);
  if (cmp === "=") return isSame(value);
  if (cmp === "!=") {
    return (
      typeof value === typeof cell && (typeof cell !== "number" || isWhole(cell)) && !isSame(value)
    );
  }
  if (typeof cell !== "number" || !isWhole(cell) || typeof value !== "number") return false;
  return { "<": cell < value, ">": cell > value, "<=": cell <= value, ">=": cell >= value }[cmp];
}
