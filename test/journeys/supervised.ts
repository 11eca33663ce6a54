import { readFileSync } from "node:fs";
import { Agent, type IncomingMessage, request } from "node:http";
import { json } from "node:stream/consumers";
import type { Test } from "tap";
import { PATIENCE_MS } from "../kit/eventually.ts";
import type { RunOptions, TestGateway } from "../kit/gateway.ts";
import { childrenOf } from "../kit/process-info.ts";
import { select } from "../kit/queries.ts";

/** Options for `count` workers; `server` has further keys of that section. */
export function servedBy(count: number, { config = "", server = "" } = {}): RunOptions {
  return { config: `[server]\nworkers = ${count}\n${server}\n${config}` };
}

export function workersOf({ service }: TestGateway): number[] {
  return childrenOf(service.child.pid ?? 0).filter((pid) => {
    try {
      return readFileSync(`/proc/${pid}/cmdline`, "utf8").includes("workers/program");
    } catch {
      // It has ended.
      return false;
    }
  });
}

/** The number of the worker that answered a request, from the audit. */
export async function workerOf({ service }: TestGateway, requestId: string): Promise<number> {
  const isIt = (line: Record<string, unknown>) => line.audit && line.requestId === requestId;
  return Number((await service.logged((line) => Boolean(isIt(line)))).worker);
}

/** A connection to each of the workers 1 to `count`, in order. */
export async function connectToEach(t: Test, gateway: TestGateway, token: string, count: number) {
  const found = new Map<number, KeptConnection>();
  while (found.size < count) {
    const kept = new KeptConnection(gateway.url);
    t.teardown(() => kept.close());
    const { requestId } = await kept.send("GET", "/api/me", token);
    found.set(await workerOf(gateway, requestId), kept);
  }
  return [...found].toSorted(([one], [other]) => one - other).map(([, kept]) => kept);
}

interface KeptAnswer {
  readonly status: number;
  readonly code: string | undefined;
  readonly body: unknown;
  readonly requestId: string;
  readonly isReused: boolean;
}

function codeOf(body: unknown): string | undefined {
  const hasCode = typeof body === "object" && body !== null && "code" in body;
  return hasCode ? String(body.code) : undefined;
}

export class KeptConnection {
  readonly #agent = new Agent({ keepAlive: true, maxSockets: 1 });
  readonly #url: string;

  constructor(url: string) {
    this.#url = url;
  }

  async send(method: string, path: string, token: string, content?: string): Promise<KeptAnswer> {
    const { promise, resolve, reject } = Promise.withResolvers<IncomingMessage>();
    const sent = request(`${this.#url}${path}`, {
      method,
      agent: this.#agent,
      headers: { "Content-Type": "application/json", Authorization: `Bearer ${token}` },
      signal: AbortSignal.timeout(PATIENCE_MS),
    });
    sent.once("response", resolve).once("error", reject);
    sent.end(content);
    const answer = await promise;
    const body = await json(answer);
    const { statusCode: status = 0, headers } = answer;
    const requestId = String(headers["x-request-id"]);
    return { status, code: codeOf(body), body, requestId, isReused: sent.reusedSocket };
  }

  close(): void {
    this.#agent.destroy();
  }
}

/** A drain closes connections that are idle for this long. */
const SILENCE_MS = 1000;

/** Sends queries until connections are refused. @returns the failures before that */
export async function askUntilRefused(
  gateway: TestGateway,
  token: string,
  think: () => Promise<void> = async () => {},
): Promise<unknown[]> {
  const kept = new KeptConnection(gateway.url);
  const wrong: unknown[] = [];
  for (let sentAt = performance.now(); ; ) {
    const before = sentAt;
    sentAt = performance.now();
    try {
      const { status } = await kept.send("POST", "/query", token, select);
      if (status !== 200) wrong.push(status);
      await think();
    } catch (error) {
      if (error instanceof Error && "code" in error && error.code === "ECONNREFUSED") break;
      // On a busy machine the client itself may have been idle for too long.
      if (performance.now() - before < SILENCE_MS) wrong.push(error);
    }
  }
  kept.close();
  return wrong;
}
