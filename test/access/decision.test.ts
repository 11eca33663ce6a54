import t from "tap";
import type { QueryDecision } from "../../src/access/decision.ts";
import { decideQuery } from "../../src/access/policy.ts";
import {
  type Asked,
  askedOf,
  scanned,
  seeded,
  snapshotOf,
  username,
  type World,
  worldOf,
} from "./decision-cases.ts";
import { opinionsOn } from "./decision-reference.ts";

const subject = { username, tokenDatabase: "*" };

/** Every reason but those that a token alone brings. */
const reasons: readonly QueryDecision["reason"][] = [
  ...(["allowed", "approval_required", "no_grant", "role_insufficient", "grant_expired"] as const),
  ...(["database_case_mismatch", "name_case_mismatch", "columns_required"] as const),
  ...(["column_denied", "column_unqualified", "limit_required", "limit_too_high"] as const),
  ...(["where_required", "too_many_changes", "row_denied", "attribute_missing"] as const),
  ...(["join_denied", "not_narrowable"] as const),
];

/** How a decision differs from what the contract says; undefined if it does not. */
function disagreement(world: World, asked: Asked, decision: QueryDecision): string | undefined {
  const opinions = opinionsOn(world, asked);
  for (const [at, { allowed, reason, additions = [] }] of decision.decisions.entries()) {
    const opinion = opinions[at];
    if (opinion === undefined) return `there is no element ${at}`;
    const faults = [...opinion.faults].join() || "none";
    if (!allowed) return opinion.faults.has(reason) ? undefined : `${at}: ${reason}, not ${faults}`;
    if (opinion.faults.size > 0) return `${at}: allowed, not ${faults}`;
    const added = [additions, opinion.additions].map((some) => [...some].sort().join());
    if (added[0] !== added[1]) return `${at}: adds ${added[0]}, not ${added[1]}`;
  }
  const asks = opinions.some((opinion) => opinion.asks.length > 0);
  const expected = asks ? "approval_required" : "allowed";
  return decision.reason === expected ? undefined : `${decision.reason}, not ${expected}`;
}

t.test("a second reading of the contract agrees on 100,000 cases", async (t) => {
  const outcomes = new Map<string, number>();
  let judged = 0;
  for (let seed = 0; judged < 100_000; seed++) {
    const choose = seeded(seed);
    const world = worldOf(choose);
    const snapshot = snapshotOf(world);
    for (let more = 0; more < 8; more++) {
      const asked = askedOf(choose);
      const query = scanned(asked);
      if (query === undefined) continue;
      judged++;
      const decision = decideQuery(snapshot, subject, query, asked.context);
      outcomes.set(decision.reason, (outcomes.get(decision.reason) ?? 0) + 1);
      const difference = disagreement(world, asked, decision);
      if (difference === undefined) continue;
      t.fail(difference, {
        seed,
        more,
        world: JSON.stringify(world),
        asked: JSON.stringify(asked),
      });
      return;
    }
  }
  t.comment([...outcomes].map(([reason, count]) => `${reason} ${count}`).join(", "));
  t.ok((outcomes.get("allowed") ?? 0) > 10_000, "many are allowed");
  const met = [...outcomes.keys()].filter((reason) => (outcomes.get(reason) ?? 0) > 50);
  t.strictSame(met.sort(), [...reasons].sort(), "and every rule is met, again and again");
});
