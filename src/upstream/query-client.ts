import type { ServerResponse } from "node:http";
import { type Dispatcher, Pool } from "undici";
import { Refusal } from "../refusal.ts";
import { askUpstream, type QueryAnswer, type QueryAsk } from "./query-ask.ts";
import { QueryExchange } from "./query-exchange.ts";
import type { QueryForward } from "./query-forward.ts";
import { Slots } from "./slots.ts";
import type { UpstreamTarget } from "./target.ts";

/** Sends queries to the upstream and streams the answers back. */
export interface QueryClient {
  /**
   * Resolves when the answer has gone out or broken off.
   *
   * @throws Refusal `upstream_unreachable`, `upstream_broken`, `upstream_timeout` or
   *   `upstream_overloaded`, as long as nothing of an answer has gone out
   */
  forward(query: QueryForward): Promise<void>;
  /** Sends a query for the gateway's own use. @throws Refusal like `forward` */
  ask(query: QueryAsk): Promise<QueryAnswer>;
  close(): Promise<void>;
}

export interface QueryClientOptions {
  readonly target: UpstreamTarget;
  readonly connections: number;
  /** Milliseconds. */
  readonly connectTimeout: number;
  /** Milliseconds to the answer's head, and between two parts of its body. */
  readonly responseTimeout: number;
  /** Milliseconds for which a client may take nothing of its answer; by default a minute. */
  readonly clientTimeout?: number;
}

const CLIENT_TIMEOUT_MS = 60_000;
/** Queries that may wait for a connection, as a multiple of the connections. */
const WAITING_PER_CONNECTION = 16;

function createPool(options: QueryClientOptions, pipelining: number): Pool {
  const { target, connections, connectTimeout, responseTimeout } = options;
  return new Pool(target.origin, {
    connections,
    pipelining,
    connect: { timeout: connectTimeout },
    headersTimeout: responseTimeout,
    bodyTimeout: responseTimeout,
    allowH2: false,
    ...(target.socketPath === undefined ? {} : { socketPath: target.socketPath }),
  });
}

function toBody(body: Buffer | Buffer[]): Buffer {
  return Array.isArray(body) ? Buffer.concat(body) : body;
}

/**
 * Waits for a slot.
 *
 * @returns false if the client went away meanwhile
 * @throws Refusal `upstream_overloaded` if too many wait, or after `maxWait` milliseconds
 */
/** @param onGone has `leave` called when the asker goes away; returns what undoes that */
async function takeSlot(
  slots: Slots,
  maxWait: number,
  onGone: (leave: () => void) => () => void,
): Promise<boolean> {
  if (slots.tryTake()) return true;
  if (slots.isFull) throw overloaded();
  const { turn, leave } = slots.wait();
  let isGone = false;
  const forget = onGone(() => {
    isGone = true;
    leave();
  });
  const timer = setTimeout(leave, maxWait);
  const hasTurn = await turn;
  clearTimeout(timer);
  forget();
  if (!hasTurn && !isGone) throw overloaded();
  return hasTurn;
}

function whenClosed(response: ServerResponse): (leave: () => void) => () => void {
  return (leave) => {
    response.once("close", leave);
    return () => response.off("close", leave);
  };
}

function whenAborted(signal: AbortSignal): (leave: () => void) => () => void {
  return (leave) => {
    signal.addEventListener("abort", leave, { once: true });
    return () => signal.removeEventListener("abort", leave);
  };
}

function overloaded(): Refusal {
  return new Refusal("upstream_overloaded", { retryAfter: 1 });
}

/** Opens a pool of connections to the upstream; nothing is connected until it is needed. */
export function createQueryClient(options: QueryClientOptions): QueryClient {
  const { connections, responseTimeout, clientTimeout = CLIENT_TIMEOUT_MS } = options;
  const pool = createPool(options, 1);
  // Without pipelining a connection is used once: for a retry that must not meet a stale one.
  const fresh = createPool(options, 0);
  // Queries wait here and not in the pool, so that one whose client left is forgotten at once.
  const slots = new Slots(connections, connections * WAITING_PER_CONNECTION);

  function attempt(through: Dispatcher, query: QueryForward, body: Buffer): Promise<boolean> {
    const exchange = new QueryExchange(query, clientTimeout);
    const dispatch = { path: "/query", method: "POST", body, headers: query.headers } as const;
    through.dispatch(dispatch, exchange);
    return exchange.outcome;
  }

  return {
    async forward(query) {
      if (!(await takeSlot(slots, responseTimeout, whenClosed(query.response)))) return;
      try {
        if (query.response.destroyed) return;
        const body = toBody(query.body);
        const isAnswered = await attempt(pool, query, body);
        if (!isAnswered) await attempt(fresh, { ...query, isRead: false }, body);
      } finally {
        slots.release();
      }
    },
    async ask(query) {
      const hasTurn = await takeSlot(slots, responseTimeout, whenAborted(query.signal));
      if (!hasTurn) throw new Refusal("upstream_broken", { detail: "given up" });
      try {
        return await askUpstream(pool, query);
      } finally {
        slots.release();
      }
    },
    async close() {
      await Promise.all([pool.destroy(), fresh.destroy()]);
    },
  };
}
