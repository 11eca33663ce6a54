import type { Test } from "tap";
import { freePort } from "../kit/free-port.ts";
import { makeStore } from "../store/kit.ts";
import { fetchMetrics, readExposition, type ServedMetric } from "./exposition.ts";

/** The metrics that a gateway has because it shares a store. */
export async function metricsOfStore(t: Test): Promise<[name: string, metric: ServedMetric][]> {
  const address = `127.0.0.1:${await freePort()}`;
  const store = await makeStore(t);
  await store.replica(store.url, store.makeHome(), `[metrics]\nlisten = "${address}"\n`);
  const served = readExposition(await fetchMetrics(address));
  return [...served].filter(([name]) => name.startsWith("gatehouse_store_"));
}
