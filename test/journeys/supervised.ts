/** Gateways that are served by several processes, and ways to tell these apart. */
import { readFileSync } from "node:fs";
import type { Test } from "tap";
import type { RunOptions, TestGateway } from "../kit/gateway.ts";
import { childrenOf } from "../kit/process-info.ts";
import { KeptConnection } from "./kept-connection.ts";

/** Options by which `count` processes serve; `server` holds further keys of that section. */
export function servedBy(count: number, { config = "", server = "" } = {}): RunOptions {
  return { config: `[server]\nworkers = ${count}\n${server}\n${config}` };
}

/** The ids of the processes that serve. */
export function workersOf({ service }: TestGateway): number[] {
  return childrenOf(service.child.pid ?? 0).filter((pid) => {
    try {
      return readFileSync(`/proc/${pid}/cmdline`, "utf8").includes("workers/program");
    } catch {
      // It has just ended.
      return false;
    }
  });
}

/** The number of the worker that has answered a request, as the audit has it. */
export async function workerOf({ service }: TestGateway, requestId: string): Promise<number> {
  const isIt = (line: Record<string, unknown>) => line.audit && line.requestId === requestId;
  return Number((await service.logged((line) => Boolean(isIt(line)))).worker);
}

/** A kept connection to each of the workers 1 to `count`, in that order; they end with the test. */
export async function connectToEach(
  t: Test,
  gateway: TestGateway,
  token: string,
  count: number,
): Promise<KeptConnection[]> {
  const found = new Map<number, KeptConnection>();
  while (found.size < count) {
    const kept = new KeptConnection(gateway.url);
    t.teardown(() => kept.close());
    const { requestId } = await kept.send("GET", "/api/me", token);
    found.set(await workerOf(gateway, requestId), kept);
  }
  return [...found].toSorted(([one], [other]) => one - other).map(([, kept]) => kept);
}
