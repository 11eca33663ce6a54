import { Pool } from "undici";
import { quantile } from "./statistics.ts";

/** Requests sent on schedule, however long responses take. */
interface OpenLoop {
  readonly port: number;
  /** By default `/query`. */
  readonly path?: string;
  /** In addition to those of a query. */
  readonly headers?: Readonly<Record<string, string>>;
  /** Requests per second. */
  readonly rate: number;
  readonly seconds: number;
  readonly tokens: readonly string[];
  readonly body: string;
}

/** Milliseconds from the scheduled time of a request to the end of its response. */
export interface Latency {
  readonly p50: number;
  readonly p99: number;
  readonly p999: number;
  readonly failed: number;
}

const CONNECTIONS = 128;

/**
 * Sends at a fixed rate. A late request counts from its scheduled time, so stalls are not hidden (coordinated
 * omission).
 */
export async function openLoop(loop: OpenLoop): Promise<Latency> {
  const { port, path = "/query", rate, seconds, tokens, body } = loop;
  const pool = new Pool(`http://127.0.0.1:${port}`, { connections: CONNECTIONS, pipelining: 1 });
  const total = rate * seconds;
  const taken: number[] = [];
  const underway: Promise<void>[] = [];
  let failed = 0;
  const start = performance.now() + 100;

  async function send(index: number, due: number): Promise<void> {
    const authorization = `Bearer ${tokens[index % tokens.length]}`;
    const headers = { ...loop.headers, "content-type": "application/json", authorization };
    try {
      const answer = await pool.request({ path, method: "POST", headers, body });
      await answer.body.dump();
      if (answer.statusCode !== 200) failed++;
      taken.push(performance.now() - due);
    } catch {
      failed++;
    }
  }

  for (let index = 0; index < total; ) {
    const due = start + (index * 1000) / rate;
    const early = due - performance.now();
    if (early > 0) await new Promise((resolve) => setTimeout(resolve, early));
    // Everything that is due, with its scheduled time.
    for (; index < total && start + (index * 1000) / rate <= performance.now(); index++) {
      underway.push(send(index, start + (index * 1000) / rate));
    }
  }
  await Promise.all(underway);
  await pool.close();
  const [p50 = 0, p99 = 0, p999 = 0] = [0.5, 0.99, 0.999].map((share) => quantile(taken, share));
  return { p50, p99, p999, failed };
}
