import { collectGrants, GrantCollection } from "../../src/core/access/entries.ts";
import {
  type AttributeValue,
  type Boundary,
  type Grant,
  groupHolder,
  type Subject,
  userHolder,
} from "../../src/core/access/grant.ts";
import type { EntryRole } from "../../src/core/access/roles.ts";
import { emptySnapshot, type Snapshot } from "../../src/core/access/snapshot.ts";
import type { RowCondition } from "../../src/core/query/limits.ts";

/** Choices that a generator of test cases makes. */

/** Takes one of some options. */
export type Choose = <Option>(options: readonly Option[]) => Option;

/** A choice by a seed, the same each time (mulberry32). */
export function seeded(seed: number): Choose {
  let state = seed | 0;
  return (options) => {
    state = (state + 0x6d2b79f5) | 0;
    let mixed = Math.imul(state ^ (state >>> 15), 1 | state);
    mixed = (mixed + Math.imul(mixed ^ (mixed >>> 7), 61 | mixed)) ^ mixed;
    const fraction = ((mixed ^ (mixed >>> 14)) >>> 0) / 2 ** 32;
    const option = options[Math.floor(fraction * options.length)];
    if (option === undefined) throw new Error("nothing to choose from");
    return option;
  };
}

/** From `least` to `most` of some items, each as often as it comes. */
export function some<Item>(
  choose: Choose,
  items: readonly Item[],
  most: number,
  least = 1,
): Item[] {
  const count = choose(Array.from({ length: most - least + 1 }, (_, at) => at + least));
  return Array.from({ length: count }, () => choose(items));
}

/** What `value` makes, one time in `odds`; else nothing. */
export function maybe<Value extends object>(
  choose: Choose,
  value: () => Value,
  odds = 3,
): Value | object {
  return choose(Array.from({ length: odds }, (_, at) => at)) === 0 ? value() : {};
}

/** Random entries and boundaries, few and alike enough to meet each other and the queries. */

export interface World {
  readonly grants: readonly Grant[];
  readonly boundaries: readonly Boundary[];
  readonly attributes: Readonly<Record<string, AttributeValue>>;
  /** The caller's groups, and the attributes of the token. */
  readonly local?: readonly string[];
  readonly ofToken?: readonly string[];
  readonly tokenAttributes?: Readonly<Record<string, AttributeValue>>;
}

export const username = "rita";
export const now = 1_000_000;

export const columns = ["id", "tenant", "status", "total"];
const patterns = ["tickets", "tickets", "customer_a", "customer_*", "cust*", "orders", "Orders"];
const roles: EntryRole[] = ["Owner", "DbAdmin", "ReadWrite", "ReadWrite", "ReadWrite", "ReadOnly"];
const narrowRoles: EntryRole[] = [...Array<EntryRole>(6).fill("ReadWrite"), "ReadOnly", "None"];
const rights = ["SELECT", "INSERT", "UPDATE", "DELETE"] as const;

function conditionOf(choose: Choose): RowCondition {
  const column = choose(columns);
  const cmp = choose(["=", "=", "!=", "<", "<=", ">", ">=", "IN"] as const);
  if (cmp === "IN")
    return { column, cmp, value: choose(["@regions", ["acme", "eu"], ["@tenant", 1]]) };
  if (cmp === "=" || cmp === "!=") {
    return {
      column,
      cmp,
      value: choose(["@tenant", "@username", "acme", "@@me", 1, true, "@regions"]),
    };
  }
  return { column, cmp, value: choose(["@level", 2, 3]) };
}

function limitsOf(choose: Choose): object {
  return {
    ...maybe(choose, () => ({ maxRows: choose([1, 2, 3, 5]) }), 4),
    ...maybe(choose, () => ({ maxChanges: choose([1, 2, 3]) }), 4),
    ...maybe(choose, () => ({ requireApproval: some(choose, rights, 2) }), 6),
  };
}

function narrowOf(choose: Choose): object {
  return {
    ...limitsOf(choose),
    ...maybe(choose, () => ({ columns: [...new Set(some(choose, columns, 4, 2))] })),
    ...maybe(choose, () => ({ writableColumns: [...new Set(some(choose, columns, 3))] }), 5),
    ...maybe(choose, () => ({ rowFilter: some(choose, [0], 2).map(() => conditionOf(choose)) })),
    ...maybe(choose, () => ({ requireWhere: [...new Set(some(choose, columns, 2))] }), 5),
  };
}

const localGroups = ["analysts", "support", "strangers"];
const tokenGroups = ["staff:eng", "staff:ops", "staff:none"];
const holders = [...localGroups, ...tokenGroups].map(groupHolder);

function grantOf(choose: Choose): Grant {
  const isNarrow = choose([true, true, false]);
  const tablesOf = choose([true, true, false])
    ? { tables: [...new Set(some(choose, patterns, 2))] }
    : {};
  return {
    holder: userHolder(username),
    database: choose(["main", "main", "*"]),
    role: choose(isNarrow || "tables" in tablesOf ? narrowRoles : roles),
    ...tablesOf,
    ...(isNarrow ? narrowOf(choose) : {}),
    ...maybe(choose, () => ({ expires: choose([now, now + 1]) }), 5),
  };
}

export function boundaryOf(choose: Choose): Boundary {
  return {
    via: choose(["mcp", "query"] as const),
    ...maybe(choose, () => ({ client: choose(["agent", "other"]) }), 4),
    ...maybe(
      choose,
      () => ({ holder: choose([userHolder(username), userHolder("bob"), ...holders]) }),
      4,
    ),
    ...maybe(choose, () => ({ database: choose(["main", "shop"]) }), 2),
    ...maybe(choose, () => ({ role: choose(roles) }), 2),
    ...limitsOf(choose),
  };
}

/** Entries of the caller and of groups, some of them alike or only roles. */
function groupGrants(choose: Choose, grants: readonly Grant[]): Grant[] {
  return some(choose, [0], 6, 2).flatMap(() => {
    const grant = choose([grantOf(choose), grantOf(choose), ...grants]);
    const { database, role, tables } = grant;
    const bare = { holder: userHolder(username), database, role, ...(tables && { tables }) };
    const given = choose([grant, bare]);
    return some(choose, [userHolder(username), ...holders, ...holders], 3).map((holder) => ({
      ...given,
      holder,
      ...maybe(choose, () => ({ role: choose([given.role, "None" as const]) }), 6),
    }));
  });
}

export function worldOf(choose: Choose): World {
  const { tables: _, ...whole } = grantOf(choose);
  const base = choose([true, true, false]) ? [{ ...whole, database: "main" }] : [];
  const own = [...base, ...some(choose, [0], 4).map(() => grantOf(choose))];
  const isGrouped = choose([true, false]);
  const drafted = isGrouped ? groupGrants(choose, own) : own;
  const grants: Grant[] = [];
  for (const grant of drafted) {
    const trial = new GrantCollection();
    const alike = grants.filter((one) => one.holder === grant.holder);
    if ([...alike, grant].every((one) => trial.add(one) === undefined)) grants.push(grant);
  }
  const count = choose([0, 0, 0, 1, 2]);
  const attributes = {
    ...maybe(choose, () => ({ tenant: choose(["acme", "eu", 1]) }), 1),
    ...maybe(choose, () => ({ regions: choose([["acme", "eu"], ["eu"], []]) }), 2),
    ...maybe(choose, () => ({ level: choose([2, 3, "high"]) }), 2),
  };
  const kept = choose([0, 1, 2, 3]) === 0 ? {} : attributes;
  const groups = {
    local: [...new Set(some(choose, localGroups.slice(0, 2), 3, 0))],
    ofToken: [...new Set(some(choose, tokenGroups, 3, 0))],
    tokenAttributes: { ...maybe(choose, () => ({ tenant: choose(["acme", "other"]) })) },
  };
  return {
    ...(isGrouped ? groups : {}),
    grants,
    boundaries: Array.from({ length: count }, () => boundaryOf(choose)),
    attributes: kept,
  };
}

/** Entries that allow the tables to be read but for parts of them. */
export function readableOf(choose: Choose): World {
  const place = { holder: userHolder(username), database: "main", role: "ReadWrite" as const };
  const narrowed = ["tickets", "customer_a", "customer_*", "orders"].map((table) => ({
    ...place,
    tables: [table],
    ...(choose([true, true, false]) ? narrowOf(choose) : {}),
  }));
  const whole = choose([[], [{ ...place, ...narrowOf(choose) }]]);
  return {
    grants: [...whole, ...narrowed],
    boundaries: choose([[], [], [boundaryOf(choose)]]),
    attributes: { tenant: choose(["acme", "eu"]), regions: ["acme", "eu"], level: 2 },
  };
}

export function subjectOf({ ofToken, tokenAttributes = {} }: World): Subject {
  return {
    username,
    tokenDatabase: "*",
    ...(ofToken && { groups: ofToken }),
    attributes: new Map(Object.entries(tokenAttributes)),
  };
}

export function snapshotOf({ grants, boundaries, attributes, local = [] }: World): Snapshot {
  const names = [...grants, ...boundaries]
    .map(({ database = "*" }) => database)
    .filter((name) => name !== "*");
  const user = {
    username,
    email: undefined,
    passwordHash: undefined,
    disabled: false,
    tokensValidAfter: 0,
    attributes: new Map(Object.entries(attributes)),
  };
  return {
    ...emptySnapshot,
    users: new Map([[username, user]]),
    groups: new Map(
      localGroups.map((name) => [
        name,
        { name, members: local.includes(name) ? ["bob", username] : ["bob"] },
      ]),
    ),
    grants: new Map(
      Map.groupBy(grants, (grant) => grant.holder)
        .entries()
        .map(([holder, held]) => [holder, collectGrants(held)]),
    ),
    databases: new Map(names.map((name) => [name.toLowerCase(), name])),
    boundaries,
  };
}
