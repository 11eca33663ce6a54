import { setTimeout as delay } from "node:timers/promises";
import { eventually } from "../../kit/eventually.ts";
import { Clients } from "./client.ts";
import { History } from "./history.ts";
import type { PatroniCluster } from "./patroni.ts";
import { Random } from "./random.ts";
import type { FaultyReplica } from "./replica.ts";
import { type Rig, untilWhole } from "./rig.ts";
import { type Outcome, wrongsOf } from "./schedule.ts";
import { Workload } from "./workload.ts";

/** Ways to lose a leader. */
const kinds = ["kill", "lag", "switch"] as const;

/** What a failover has come to. */
export interface FailedOver extends Outcome {
  /** Replicas that had applied what the new leader lacks, and stood still until a restart. */
  readonly stuck: number;
}

/** What a replica says of itself. */
async function stateOf({ gateway }: FaultyReplica): Promise<"decides" | "stuck" | "waits"> {
  const signal = AbortSignal.timeout(2000);
  const answer = await gateway.request("/readyz", { signal }).catch(() => undefined);
  if (answer?.status === 200 && answer.body.store === "reached") return "decides";
  const isLost = gateway.service.log.some(({ reason }) => /has lost changes/.test(String(reason)));
  return isLost && answer?.body.code === "store_unreachable" ? "stuck" : "waits";
}

/**
 * Runs clients while the leader is lost, and looks whether all that was answered can be explained.
 * Replicas that know more than the new leader must stand still, until they are restarted.
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
      // Of a synchronous cluster no change is answered now.
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
    await eventually(`replica ${replica.name} decides, or has said why not`, async () => {
      state = await stateOf(replica);
      return state !== "waits";
    });
    if (state === "stuck") stuck.push(replica);
  }
  // It stands still for good, however the cluster is.
  await cluster.mend();
  for (const replica of stuck) {
    if ((await stateOf(replica)) !== "stuck") throw new Error("it came back by itself");
    await replica.gateway.service.stop();
    await replica.start();
  }
  await untilWhole(rig);
  // What was lost is lost: after a restart the state is another.
  if (stuck.length === 0) await workload.lookAtAll();
  return {
    seed,
    faults: [kind, ...(stuck.length === 0 ? [] : [`${stuck.length} replicas restarted`])],
    history,
    answers: clients.answers,
    violations: history.violations(),
    wrongs: await wrongsOf(rig, clients),
    stuck: stuck.length,
  };
}
