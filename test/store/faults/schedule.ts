import { setTimeout as delay } from "node:timers/promises";
import { Clients } from "./client.ts";
import { History, type Violation } from "./history.ts";
import { type Fault, faultKinds } from "./kinds.ts";
import { Random } from "./random.ts";
import { type Rig, untilWhole } from "./rig.ts";
import { Workload } from "./workload.ts";

export interface Outcome {
  readonly seed: number;
  readonly faults: readonly string[];
  readonly history: History;
  readonly answers: ReadonlyMap<string, number>;
  readonly violations: readonly Violation[];
  /** Problems other than violations. */
  readonly problems: readonly string[];
}

/** All faults of a schedule begin within this time. */
const LAST_START_MS = 3000;
const MAX_DRAWS = 50;
/** Clients continue for this time after the last fault. */
const AFTER_MS = 700;

/** Draws two or three faults with different subjects, or fewer if the kinds do not allow it. */
function draw(rig: Rig, random: Random, kinds: readonly string[]): Fault[] {
  const count = random.next() < 0.4 ? 3 : 2;
  const faults: Fault[] = [];
  for (let tries = 0; faults.length < count && tries < MAX_DRAWS; tries++) {
    const fault = faultKinds[random.of(kinds)]?.(rig, random);
    if (fault === undefined) continue;
    const { subject } = fault;
    if (!faults.some((other) => other.subject === subject)) faults.push(fault);
  }
  return faults;
}

/** Perhaps puts PgBouncer between replicas and store. @returns the rig without unused parts */
async function choosePooling(rig: Rig, random: Random): Promise<Rig> {
  const { pooler, store, network } = rig;
  const isPooled = pooler !== undefined && random.next() < 0.4;
  network.storeWire.redirect(isPooled ? pooler.port : store.server.port);
  await untilWhole(rig);
  return isPooled ? rig : { ...rig, pooler: undefined };
}

/**
 * Runs clients while replicas, networks and the store fail as the seed determines, and then checks
 * that the answers are linearizable.
 */
export async function runSchedule(
  all: Rig,
  seed: number,
  kinds: readonly string[] = Object.keys(faultKinds),
): Promise<Outcome> {
  const random = new Random(seed);
  const rig = await choosePooling(all, random);
  const faults = draw(rig, random, kinds);
  const starts = faults.map(() => random.between(200, LAST_START_MS));
  const history = new History();
  const clients = new Clients(rig, random);
  const workload = await Workload.prepare({ rig, clients, history, random }, `s${seed}`);
  const running = workload.run();
  await Promise.all(
    faults.map(async (fault, at) => {
      await delay(starts[at] ?? 0);
      await fault.run();
    }),
  );
  await delay(AFTER_MS);
  workload.stop();
  await running;
  await untilWhole(rig);
  await workload.readAll();
  return {
    seed,
    faults: [
      rig.pooler === undefined ? "direct" : "through PgBouncer",
      ...faults.map(({ name }, at) => `${((starts[at] ?? 0) / 1000).toFixed(1)}: ${name}`),
    ],
    history,
    answers: clients.answers,
    violations: history.violations(),
    problems: await problemsOf(rig, clients),
  };
}

export async function problemsOf(
  { replicas, store }: Rig,
  { answers }: Clients,
): Promise<string[]> {
  const problems: string[] = [];
  for (const { name, isRunning } of replicas)
    if (!isRunning) problems.push(`replica ${name} has ended`);
  for (const answer of answers.keys()) if (answer.startsWith("500")) problems.push(answer);
  const [log] = await store.sql("select max(version) + 1 - count(*) as gaps from gatehouse.log");
  if (Number(log?.gaps) !== 0) problems.push(`${log?.gaps} versions of the log are missing`);
  return problems;
}
