import { Agent } from "node:http";
import { setTimeout as delay } from "node:timers/promises";
import { quantile } from "../rig/statistics.ts";
import { post } from "./client.ts";

const select = JSON.stringify({ Select: { database: "main", from: "t", columns: ["*"] } });

/** Responses to queries sent at a steady rate. */
interface QueryFigures {
  readonly p50Ms: number;
  readonly p99Ms: number;
  readonly queries: number;
  readonly failed: number;
}

interface StormFigures {
  readonly hashesPerSecond: number;
  readonly turnedAwayPerSecond: number;
}

/** Sends queries on schedule, whether or not earlier ones have finished (an open loop). */
export async function queryLoad(
  url: string,
  token: string,
  { rate, seconds }: { rate: number; seconds: number },
): Promise<QueryFigures> {
  const agent = new Agent({ keepAlive: true });
  const start = performance.now();
  const sent: Promise<{ ms: number; status: number }>[] = [];
  for (let at = 0; at < rate * seconds; at++) {
    const due = start + (at * 1000) / rate;
    const wait = due - performance.now();
    if (wait > 0) await delay(wait);
    sent.push(
      post(`${url}/query`, select, { agent, token }).catch(() => ({ ms: Number.NaN, status: 0 })),
    );
  }
  const answers = await Promise.all(sent);
  agent.destroy();
  const good = answers.filter(({ status }) => status === 200).map(({ ms }) => ms);
  return {
    p50Ms: quantile(good, 0.5),
    p99Ms: quantile(good, 0.99),
    queries: answers.length,
    failed: answers.length - good.length,
  };
}

/** A refused client retries after this time, as `Retry-After` says. */
const RETRY_MS = 1000;

/** Keeps `clients` logging in with wrong passwords until `work` has finished. */
export async function duringStorm<T>(
  url: string,
  clients: number,
  work: () => Promise<T>,
): Promise<StormFigures & { readonly result: T }> {
  const agent = new Agent({ keepAlive: true });
  let isOver = false;
  let hashed = 0;
  let turnedAway = 0;
  const storm = Array.from({ length: clients }, async (_, at) => {
    const body = JSON.stringify({ username: `user-${at}`, password: "a wrong password" });
    while (!isOver) {
      const { status } = await post(`${url}/login`, body, { agent });
      if (isOver) return;
      if (status === 401) hashed++;
      else turnedAway++;
      if (status === 503) await delay(RETRY_MS);
    }
  });
  const start = performance.now();
  const result = await work();
  const seconds = (performance.now() - start) / 1000;
  isOver = true;
  const results = { hashesPerSecond: hashed / seconds, turnedAwayPerSecond: turnedAway / seconds };
  await Promise.allSettled(storm);
  agent.destroy();
  return { result, ...results };
}
