/**
 * Runs clients of three replicas while replicas, networks and the store fail on random schedules, then checks
 * that one history explains all responses.
 *
 * `node bench/store-faults.ts [--schedules 50] [--seed 1] [--kinds jump,pause] [--patroni sync|async]`
 *
 * With `--patroni`, the store is three PostgreSQL servers under Patroni that lose their leader.
 */
import { parseArgs } from "node:util";
import { runFailover } from "../test/store/faults/failover.ts";
import { faultKinds } from "../test/store/faults/kinds.ts";
import { missingForPatroni, PatroniCluster } from "../test/store/faults/patroni.ts";
import { startRig } from "../test/store/faults/rig.ts";
import { isInside, runInside } from "../test/store/faults/sandbox.ts";
import { type Outcome, runSchedule } from "../test/store/faults/schedule.ts";

const { values: flags } = parseArgs({
  options: {
    schedules: { type: "string", default: "50" },
    seed: { type: "string", default: "1" },
    kinds: { type: "string", default: Object.keys(faultKinds).join(",") },
    patroni: { type: "string" },
  },
});

function tell({ seed, faults, history, answers, violations, problems }: Outcome): void {
  const { operations, writes, unknownWrites, registers, slowestWriteMs } = history;
  const slowest = `${(slowestWriteMs / 1000).toFixed(1)} s`;
  const verdict = violations.length + problems.length === 0 ? "good" : "WRONG";
  console.log(
    `${verdict} seed ${seed}: ${faults.join("; ")} | ${operations} operations on ${registers} registers, ` +
      `${writes} changes (${unknownWrites} unknown, slowest ${slowest})`,
  );
  const shown = [...answers].map(([answer, count]) => `${answer.trim()} ${count}`).join(", ");
  if (verdict !== "good") console.log(`  answers: ${shown}`);
  for (const problem of problems) console.log(`  ${problem}`);
  for (const { register, replica, read, writes } of violations.slice(0, 5)) {
    console.log(`  ${register} at replica ${replica}: ${JSON.stringify(read)} after`);
    for (const write of writes) console.log(`    ${JSON.stringify(write)}`);
  }
}

async function runAll(): Promise<number> {
  const start = performance.now();
  await using opened = new AsyncDisposableStack();
  const teardown = (work: () => unknown) => opened.defer(async () => void (await work()));
  const missing = flags.patroni === undefined ? [] : missingForPatroni();
  if (missing.length > 0) throw new Error(`this machine does not have ${missing.join(", ")}`);
  const cluster =
    flags.patroni === undefined
      ? undefined
      : await PatroniCluster.start({ teardown }, flags.patroni === "sync");
  const rig = await startRig({ teardown }, cluster);
  console.log(
    `${isInside() ? "network namespaces" : "relays"}; ${rig.balancer === undefined ? "no HAProxy" : "HAProxy"}; ${rig.pooler === undefined ? "no PgBouncer" : "PgBouncer"}`,
  );
  const outcomes: Outcome[] = [];
  for (let at = 0; at < Number(flags.schedules); at++) {
    const seed = Number(flags.seed) + at;
    const outcome = await (cluster === undefined
      ? runSchedule(rig, seed, flags.kinds.split(","))
      : runFailover(rig, cluster, seed));
    tell(outcome);
    outcomes.push(outcome);
  }
  const bad = outcomes.filter(
    ({ violations, problems }) => violations.length + problems.length > 0,
  );
  const sum = (of: (outcome: Outcome) => number) => outcomes.reduce((all, one) => all + of(one), 0);
  console.log(
    `${outcomes.length} schedules, ${sum(({ history }) => history.operations)} operations, ` +
      `${sum(({ history }) => history.writes)} changes, ${bad.length} schedules wrong` +
      `${bad.map(({ seed }) => ` ${seed}`).join("")}; ${((performance.now() - start) / 1000).toFixed(0)} s`,
  );
  return bad.length === 0 ? 0 : 1;
}

process.exitCode = (await runInside()) ?? (await runAll());
if (isInside()) process.exit();
