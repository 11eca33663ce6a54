import { setTimeout as delay } from "node:timers/promises";
import { eventually } from "../../kit/eventually.ts";
import { Clients } from "./client.ts";
import { History } from "./history.ts";
import type { PatroniCluster } from "./patroni.ts";
import { Random } from "./random.ts";
import type { FaultyReplica } from "./replica.ts";
import { type Rig, untilWhole } from "./rig.ts";
import { type Outcome, problemsOf } from "./schedule.ts";
import { Workload } from "./workload.ts";

const kinds = ["kill", "lag", "switch"] as const;

interface FailedOver extends Outcome {
  /** Replicas that stopped deciding until a restart, because the new leader lacks changes. */
  readonly stuck: number;
}

async function stateOf({ gateway }: FaultyReplica): Promise<"decides" | "stuck" | "waits"> {
  const signal = AbortSignal.timeout(2000);
  const answer = await gateway.request("/readyz", { signal }).catch(() => undefined);
  if (answer?.status === 200 && answer.body.store === "reached") return "decides";
  const isLost = gateway.service.log.some(({ reason }) => /has lost changes/.test(String(reason)));
  return isLost && answer?.body.code === "store_unreachable" ? "stuck" : "waits";
}

/**
 * Runs clients while the leader is lost, and checks that the answers are linearizable. Replicas that
 * know more than the new leader must not decide until they are restarted.
 */
export async function runFailover(
  rig: Rig,
  cluster: PatroniCluster,
  seed: number,
): Promise<FailedOver> {
  const random = new Random(seed);
  const kind = random.of(kinds);
  await untilWhole(rig);
  const history = new History();
  const clients = new Clients(rig, random);
  const workload = await Workload.prepare({ rig, clients, history, random }, `s${seed}`);
  const running = workload.run();
  await delay(random.between(500, 1500));
  if (kind === "switch") await cluster.switchOver();
  else {
    if (kind === "lag") {
      await cluster.cutReplication();
      const before = history.writes;
      const start = performance.now();
      // A synchronous cluster answers no change now.
      await eventually("changes that no standby has", () => {
        return history.writes > before + 3 || performance.now() - start > 3000;
      });
    }
    await cluster.killLeader();
  }
  await delay(3000);
  workload.stop();
  await running;
  const stuck: FaultyReplica[] = [];
  for (const replica of rig.replicas) {
    let state = "waits";
    await eventually(`replica ${replica.name} decides, or has logged the loss`, async () => {
      state = await stateOf(replica);
      return state !== "waits";
    });
    if (state === "stuck") stuck.push(replica);
  }
  // Only a restart lets it decide again.
  await cluster.repair();
  for (const replica of stuck) {
    if ((await stateOf(replica)) !== "stuck")
      throw new Error("a replica recovered without a restart");
    await replica.gateway.service.stop();
    await replica.start();
  }
  await untilWhole(rig);
  // After a restart, the lost changes are gone, so a final read could fail.
  if (stuck.length === 0) await workload.readAll();
  return {
    seed,
    faults: [kind, ...(stuck.length === 0 ? [] : [`${stuck.length} replicas restarted`])],
    history,
    answers: clients.answers,
    violations: history.violations(),
    problems: await problemsOf(rig, clients),
    stuck: stuck.length,
  };
}
