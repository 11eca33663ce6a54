import type { IncomingMessage, ServerResponse } from "node:http";
import { type Dispatcher, Pool } from "undici";
import { Refusal } from "../refusal.ts";
import { QueryExchange } from "./query-exchange.ts";
import type { UpstreamTarget } from "./target.ts";

/** A query that was allowed and goes up. */
export interface QueryForward {
  readonly request: IncomingMessage;
  readonly response: ServerResponse;
  /** The bytes that were judged, sent as they are. */
  readonly body: Buffer | Buffer[];
  readonly headers: Record<string, string | string[]>;
  /** A query that only reads may be sent again if its connection breaks before an answer. */
  readonly isRead: boolean;
  /** Headers that the gateway adds to the answer: names and values in turn. */
  readonly answerHeaders: readonly string[];
}

/** Sends queries to the upstream and streams the answers back. */
export interface QueryClient {
  /**
   * Resolves when the answer has gone out or broken off.
   *
   * @throws Refusal `upstream_unreachable`, `upstream_broken`, `upstream_timeout` or
   *   `upstream_overloaded`, as long as nothing of an answer has gone out
   */
  forward(query: QueryForward): Promise<void>;
  close(): Promise<void>;
}

export interface QueryClientOptions {
  readonly target: UpstreamTarget;
  readonly connections: number;
  /** Milliseconds. */
  readonly connectTimeout: number;
  /** Milliseconds to the answer's head, and between two parts of its body. */
  readonly responseTimeout: number;
}

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

/** Opens a pool of connections to the upstream; nothing is connected until it is needed. */
export function createQueryClient(options: QueryClientOptions): QueryClient {
  const pool = createPool(options, 1);
  // Without pipelining a connection is used once: for a retry that must not meet a stale one.
  const fresh = createPool(options, 0);
  const capacity = options.connections * (1 + WAITING_PER_CONNECTION);
  let inFlight = 0;

  function attempt(through: Dispatcher, query: QueryForward, body: Buffer): Promise<boolean> {
    const exchange = new QueryExchange(query, options.responseTimeout);
    const dispatch = { path: "/query", method: "POST", body, headers: query.headers } as const;
    through.dispatch(dispatch, exchange);
    return exchange.outcome;
  }

  return {
    async forward(query) {
      if (inFlight >= capacity) throw new Refusal("upstream_overloaded", { retryAfter: 1 });
      inFlight++;
      try {
        const body = toBody(query.body);
        const isAnswered = await attempt(pool, query, body);
        if (!isAnswered) await attempt(fresh, { ...query, isRead: false }, body);
      } finally {
        inFlight--;
      }
    },
    async close() {
      await Promise.all([pool.destroy(), fresh.destroy()]);
    },
  };
}
