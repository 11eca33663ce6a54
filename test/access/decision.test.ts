import assert from "node:assert/strict";
import { isDeepStrictEqual } from "node:util";
import fc from "fast-check";
import t, { type Test } from "tap";
import { type Grant, groupHolder, userHolder } from "../../src/core/access/grant.ts";
import { decideQuery } from "../../src/core/access/policy.ts";
import {
  boundaryName,
  type Decision,
  filterAdditions,
  type QueryDecision,
} from "../../src/core/access/rights.ts";
import { addedTexts } from "../../src/core/access/row-filter.ts";
import { runAtOnce } from "../../src/core/base/cooperative-scheduling.ts";
import { addToBytes } from "../../src/core/query/additions.ts";
import type { Query } from "../../src/core/query/query.ts";
import { caseCount } from "../kit/nightly.ts";
import { type AskedQuery, askedOf, grammar, parsed, readingOf } from "./decision-queries.ts";
import { filteredBody, opinionsOn } from "./decision-reference.ts";
import {
  boundaryOf,
  type Choose,
  now,
  readableOf,
  seeded,
  snapshotOf,
  subjectOf,
  username,
  type World,
  worldOf,
} from "./decision-worlds.ts";

/** Every reason but those that a token alone brings. */
const reasons: readonly QueryDecision["reason"][] = [
  ...(["allowed", "approval_required", "no_grant", "role_insufficient", "grant_expired"] as const),
  "group_conflict",
  ...(["database_case_mismatch", "name_case_mismatch", "columns_required"] as const),
  ...(["column_denied", "column_unqualified", "limit_required", "limit_too_high"] as const),
  ...(["where_required", "too_many_changes", "row_denied", "attribute_missing"] as const),
  ...(["join_denied", "not_narrowable"] as const),
];

/** How a decision differs from what the contract says; undefined if it does not. */
function disagreement(
  world: World,
  asked: AskedQuery,
  decision: QueryDecision,
): string | undefined {
  const opinions = opinionsOn(world, asked);
  for (const [at, { allowed, reason, filters }] of decision.decisions.entries()) {
    const opinion = opinions[at];
    if (opinion === undefined) return `there is no element ${at}`;
    const faults = [...opinion.faults].join() || "none";
    if (!allowed) return opinion.faults.has(reason) ? undefined : `${at}: ${reason}, not ${faults}`;
    if (opinion.faults.size > 0) return `${at}: allowed, not ${faults}`;
    const added = [addedTexts(filters), opinion.additions].map((some) => [...some].sort().join());
    if (added[0] !== added[1]) return `${at}: adds ${added[0]}, not ${added[1]}`;
  }
  const asks = opinions.some((opinion) => opinion.asks.length > 0);
  const expected = asks ? "approval_required" : "allowed";
  return decision.reason === expected ? undefined : `${decision.reason}, not ${expected}`;
}

/** How the forwarded body differs from the query with its filters; undefined if it does not. */
function misplaced(
  world: World,
  asked: AskedQuery,
  query: Query,
  { allowed, decisions }: QueryDecision,
): string | undefined {
  const text = JSON.stringify(asked.body);
  if (!allowed || text.includes('"bind":')) return undefined;
  const read = { body: Buffer.from(text), query };
  const steps = addToBytes(read, filterAdditions(decisions), grammar, Number.POSITIVE_INFINITY);
  const body = runAtOnce(steps).body.toString();
  const expected = filteredBody(world, asked);
  return isDeepStrictEqual(JSON.parse(body), expected)
    ? undefined
    : `forwards ${body}, not ${JSON.stringify(expected)}`;
}

const CASES = caseCount(5000, 100_000);
const PROPERTY_RUNS = caseCount(300, 8000);

/** Compares decisions on random cases. Returns how often each reason is met, and filters within. */
function compare(
  t: Test,
  cases: number,
  makeWorld: (choose: Choose) => World,
  ask: (choose: Choose) => AskedQuery,
): { outcomes: Map<string, number>; filteredWithin: number } {
  const outcomes = new Map<string, number>();
  let filteredWithin = 0;
  let judged = 0;
  for (let seed = 0; judged < cases; seed++) {
    const choose = seeded(seed);
    const world = makeWorld(choose);
    const snapshot = snapshotOf(world);
    for (let more = 0; more < 8; more++) {
      const asked = ask(choose);
      const query = parsed(asked);
      if (query === undefined) continue;
      judged++;
      const decision = decideQuery(snapshot, subjectOf(world), query, asked.context);
      const isFilteredWithin = filterAdditions(decision.decisions).some(
        ({ node }) => node.outer !== undefined,
      );
      if (decision.allowed && isFilteredWithin) filteredWithin++;
      outcomes.set(decision.reason, (outcomes.get(decision.reason) ?? 0) + 1);
      const difference =
        disagreement(world, asked, decision) ?? misplaced(world, asked, query, decision);
      if (difference === undefined) continue;
      t.fail(difference, {
        seed,
        more,
        world: JSON.stringify(world),
        asked: JSON.stringify(asked),
      });
      return { outcomes, filteredWithin };
    }
  }
  t.comment([...outcomes].map(([reason, count]) => `${reason} ${count}`).join(", "));
  return { outcomes, filteredWithin };
}

t.test(`a second reading of the contract agrees on ${CASES} cases`, async (t) => {
  const { outcomes } = compare(t, CASES, worldOf, askedOf);
  t.ok((outcomes.get("allowed") ?? 0) > CASES / 10, "many are allowed");
  const met = [...outcomes.keys()].filter((reason) => (outcomes.get(reason) ?? 0) > CASES / 2000);
  t.strictSame(met.sort(), [...reasons].sort(), "and every rule is met, again and again");
});

t.test("it agrees on Selects that include tables and read from other Selects", async (t) => {
  const cases = CASES / 4;
  const { outcomes, filteredWithin } = compare(t, cases, readableOf, readingOf);
  for (const outcome of ["allowed", "column_denied", "limit_required", "limit_too_high"]) {
    t.ok((outcomes.get(outcome) ?? 0) > cases / 50, outcome);
  }
  t.ok(filteredWithin > cases / 50, `${filteredWithin} are filtered within`);
});

function decideOn(world: World, asked: AskedQuery): QueryDecision | undefined {
  const query = parsed(asked);
  return query && decideQuery(snapshotOf(world), subjectOf(world), query, asked.context);
}

function gist({ allowed, reason, decisions, limits }: QueryDecision) {
  const last = decisions.at(-1);
  const { entry, boundary } = last ?? {};
  return { allowed, reason, at: decisions.length, entry, boundary, limits };
}

/** A case that fast-check makes, and makes smaller. */
const cases = fc.gen().map((take) => {
  const choose: Choose = (options) => {
    const at = take(fc.nat, { max: options.length - 1 });
    const [option] = options.slice(at, at + 1);
    if (option === undefined) throw new Error("nothing to choose from");
    return option;
  };
  return { choose, world: worldOf(choose), asked: askedOf(choose) };
});

function withGrant(world: World, at: number, change: (grant: Grant) => Grant): World {
  return { ...world, grants: world.grants.map((grant, n) => (n === at ? change(grant) : grant)) };
}

/** Each takes something away from what an entry gives, whatever it has. */
const narrowings: readonly ((grant: Grant) => Grant)[] = [
  (grant) => ({ ...grant, role: grant.role === "ReadWrite" ? "ReadOnly" : "None" }),
  (grant) => ({ ...grant, role: "None" }),
  (grant) => ({ ...grant, columns: grant.columns?.slice(1) ?? ["id", "tenant"] }),
  (grant) => ({ ...grant, writableColumns: grant.writableColumns?.slice(1) ?? ["status"] }),
  (grant) => ({
    ...grant,
    rowFilter: [...(grant.rowFilter ?? []), { column: "tenant", cmp: "=", value: "@tenant" }],
  }),
  (grant) => ({ ...grant, maxRows: Math.min(grant.maxRows ?? 2, 1) }),
  (grant) => ({ ...grant, maxChanges: Math.min(grant.maxChanges ?? 2, 1) }),
  (grant) => ({ ...grant, requireApproval: ["SELECT", "INSERT", "UPDATE", "DELETE"] }),
];
/** This one vouches for the database's key too, so it narrows where the engine counts. */
const pinning = (grant: Grant): Grant => ({
  ...grant,
  requireWhere: [...(grant.requireWhere ?? []), "total"],
});

t.test("narrowing an entry never allows more", async () => {
  fc.assert(
    fc.property(cases, ({ choose, world, asked }) => {
      const before = decideOn(world, asked);
      if (before === undefined || before.allowed || world.grants.length === 0) return;
      // No column can differ only by case from one that no entry names any more.
      if (before.reason === "name_case_mismatch") return;
      // Entries of groups that differ may be narrowed until they are equal.
      if (before.reason === "group_conflict") return;
      const at = choose([...world.grants.keys()]);
      const possible = asked.context.isEngine ? [...narrowings, pinning] : narrowings;
      for (const narrow of possible) {
        const after = decideOn(withGrant(world, at, narrow), asked);
        if (after?.allowed !== false) throw new Error(`allowed by ${narrow}`);
      }
    }),
    { numRuns: PROPERTY_RUNS },
  );
});

t.test("adding a boundary never allows more", async () => {
  fc.assert(
    fc.property(cases, ({ choose, world, asked }) => {
      const before = decideOn(world, asked);
      if (before === undefined || before.allowed) return;
      const boundary = boundaryOf(choose);
      const after = decideOn({ ...world, boundaries: [boundary, ...world.boundaries] }, asked);
      if (after?.allowed !== false) throw new Error(`allowed by ${JSON.stringify(boundary)}`);
    }),
    { numRuns: PROPERTY_RUNS },
  );
});

t.test("the order of entries never matters", async () => {
  fc.assert(
    fc.property(cases, ({ world, asked }) => {
      const before = decideOn(world, asked);
      const turn = (grant: Grant) =>
        grant.tables === undefined ? grant : { ...grant, tables: grant.tables.toReversed() };
      const grants = world.grants.toReversed().map(turn);
      const after = decideOn({ ...world, grants }, asked);
      if (before === undefined || after === undefined) return;
      assert.deepEqual(gist(after), gist(before));
    }),
    { numRuns: PROPERTY_RUNS },
  );
});

/** The entries at the place, and of the group, that a decision names. */
function isNamed({ holder, database, tables }: Grant, entry = ""): boolean {
  const [, place, group] = /^(\S+)(?: \(groups? (.*)\))?$/.exec(entry) ?? [];
  const isHolder =
    group === undefined
      ? String(holder) === username
      : group.split(", ").some((name) => holder === groupHolder(name));
  // Patterns that differ may have brought the groups into conflict.
  if (entry.includes(" (groups ")) return isHolder;
  return (
    isHolder &&
    (tables ?? [undefined]).some(
      (table) => place === (table === undefined ? database : `${database}.${table}`),
    )
  );
}

/** The rules without the one that a refusal names. */
function lift(world: World, { reason, entry, boundary }: Decision): World {
  if (boundary !== undefined) {
    const others = world.boundaries.filter((one) => boundaryName(one) !== boundary);
    return { ...world, boundaries: others };
  }
  if (reason === "no_grant" || reason === "database_case_mismatch") {
    return {
      ...world,
      boundaries: [],
      grants: [{ holder: userHolder(username), database: "*", role: "Owner" }],
    };
  }
  return {
    ...world,
    grants: world.grants.flatMap((grant) => {
      if (!isNamed(grant, entry)) return [grant];
      if (reason === "role_insufficient") return [{ ...grant, role: "Owner" as const }];
      if (reason === "grant_expired") return [{ ...grant, expires: now + 1 }];
      if (reason === "name_case_mismatch" || reason === "not_narrowable") return [];
      const { holder, database, role, tables, expires } = grant;
      const place = tables === undefined ? {} : { tables };
      const time = expires === undefined ? {} : { expires };
      return [{ holder, database, role, ...place, ...time }];
    }),
  };
}

t.test("each refusal names a rule without which it would be another decision", async () => {
  fc.assert(
    fc.property(cases, ({ world, asked }) => {
      const before = decideOn(world, asked);
      const refusal = before?.decisions.at(-1);
      if (before === undefined || refusal === undefined || refusal.allowed) return;
      const after = decideOn(lift(world, refusal), asked);
      assert.notDeepEqual(after && gist(after), gist(before));
      const { message } = refusal;
      if (message !== undefined)
        assert.match(message, /^[A-Z].{10,}/, "a sentence says what to do");
    }),
    { numRuns: PROPERTY_RUNS },
  );
});
