import { setTimeout as delay } from "node:timers/promises";
import { Clients } from "./client.ts";
import { History, type Violation } from "./history.ts";
import { type Fault, faultKinds } from "./kinds.ts";
import { Random } from "./random.ts";
import { type Rig, untilWhole } from "./rig.ts";
import { Workload } from "./workload.ts";

/** What a schedule of faults has come to. */
export interface Outcome {
  readonly seed: number;
  readonly faults: readonly string[];
  readonly history: History;
  readonly answers: ReadonlyMap<string, number>;
  readonly violations: readonly Violation[];
  /** What else went wrong. */
  readonly wrongs: readonly string[];
}

/** Seconds in which all faults of a schedule begin. */
const BEGINNINGS_MS = 3000;
/** Draws of a fault, at most. */
const MOST_TRIES = 50;
/** Milliseconds that clients go on for after the last fault. */
const AFTER_MS = 700;

/** Draws two or three faults of some kinds, or one if all of these happen to the same. */
function draw(rig: Rig, random: Random, kinds: readonly string[]): Fault[] {
  const count = random.next() < 0.4 ? 3 : 2;
  const faults: Fault[] = [];
  for (let tries = 0; faults.length < count && tries < MOST_TRIES; tries++) {
    const fault = faultKinds[random.of(kinds)]?.(rig, random);
    if (fault === undefined) continue;
    const { subject } = fault;
    if (!faults.some((other) => other.subject === subject)) faults.push(fault);
  }
  return faults;
}

/** Has the replicas reach the store by PgBouncer, or not. @returns the rig without what is unused */
async function chooseWay(rig: Rig, random: Random): Promise<Rig> {
  const { pooler, store, network } = rig;
  const isPooled = pooler !== undefined && random.next() < 0.4;
  network.storeWire.leadTo(isPooled ? pooler.port : store.server.port);
  await untilWhole(rig);
  return isPooled ? rig : { ...rig, pooler: undefined };
}

/**
 * Runs clients while replicas, networks and the store fail as a seed says, and then looks whether
 * all that was answered can be explained.
 */
export async function runSchedule(
  all: Rig,
  seed: number,
  kinds: readonly string[] = Object.keys(faultKinds),
): Promise<Outcome> {
  const random = new Random(seed);
  const rig = await chooseWay(all, random);
  const faults = draw(rig, random, kinds);
  const starts = faults.map(() => random.between(200, BEGINNINGS_MS));
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
  await workload.lookAtAll();
  return {
    seed,
    faults: [
      rig.pooler === undefined ? "straight" : "by PgBouncer",
      ...faults.map(({ name }, at) => `${((starts[at] ?? 0) / 1000).toFixed(1)}: ${name}`),
    ],
    history,
    answers: clients.answers,
    violations: history.violations(),
    wrongs: await wrongsOf(rig, clients),
  };
}

/** What went wrong beside what was answered. */
export async function wrongsOf({ replicas, store }: Rig, { answers }: Clients): Promise<string[]> {
  const wrongs: string[] = [];
  for (const { name, isRunning } of replicas)
    if (!isRunning) wrongs.push(`replica ${name} has ended`);
  for (const answer of answers.keys()) if (answer.startsWith("500")) wrongs.push(answer);
  const [log] = await store.sql("select max(version) + 1 - count(*) as gaps from gatehouse.log");
  if (Number(log?.gaps) !== 0) wrongs.push(`${log?.gaps} versions of the log are missing`);
  return wrongs;
}
