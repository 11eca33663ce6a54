/** Compares the processor time of two systems in the same run. */
import type { Test } from "tap";
import { Pool } from "undici";
import type { System } from "../../bench/peers/system.ts";

const CONNECTIONS = 16;
/** Other load on the machine only adds time, so one good pair is proof. */
const MOST_PAIRS = 30;

interface Sent {
  readonly path: string;
  readonly headers?: Readonly<Record<string, string>>;
  readonly body: string;
  readonly tokens: readonly string[];
  readonly requests: number;
}

type Measured = Pick<System, "name" | "port" | "program"> & Partial<Pick<Sent, "tokens">>;

/** Sends requests over several connections. @throws Error if one does not succeed */
export async function send({ port }: Pick<System, "port">, sent: Sent): Promise<void> {
  const { path, body, requests, tokens } = sent;
  const pool = new Pool(`http://127.0.0.1:${port}`, { connections: CONNECTIONS });
  let count = 0;
  async function client(): Promise<void> {
    while (count < requests) {
      const authorization = `Bearer ${tokens[count++ % tokens.length]}`;
      const headers = { "content-type": "application/json", ...sent.headers, authorization };
      const answer = await pool.request({ path, method: "POST", headers, body });
      if (answer.statusCode !== 200) throw new Error(await answer.body.text());
      await answer.body.dump();
    }
  }
  await Promise.all(Array.from({ length: CONNECTIONS }, client));
  await pool.close();
}

/** Processor time per request in microseconds. */
async function cost({ program, ...system }: Measured, sent: Sent): Promise<number> {
  const before = program.cpuSeconds();
  await send(system, { ...sent, tokens: system.tokens ?? sent.tokens });
  return ((program.cpuSeconds() - before) * 1e6) / sent.requests;
}

/** The lowest ratio of a system's time to another one's; stops at the first that is low enough. */
export async function bestRatio(
  t: Test,
  [system, floor]: readonly [Measured, Measured],
  sent: Sent,
  enough: number,
): Promise<number> {
  let best = Number.POSITIVE_INFINITY;
  // In turn, so that other load affects both; the first pair warms up.
  for (let pair = 0; pair <= MOST_PAIRS && best > enough; pair++) {
    const own = await cost(system, sent);
    const other = await cost(floor, sent);
    t.comment(`pair ${pair}: ${own.toFixed(0)} µs, of ${other.toFixed(0)} µs for ${floor.name}`);
    if (pair > 0) best = Math.min(best, own / other);
  }
  return best;
}
