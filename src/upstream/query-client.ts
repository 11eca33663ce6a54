import type { ServerResponse } from "node:http";
import type { UpstreamFigures } from "../observe/source-figures.ts";
import { Refusal } from "../refusal.ts";
import type { Connection } from "./http1/connection.ts";
import { ConnectionPool } from "./http1/pool.ts";
import { fieldLines, type RequestFields } from "./http1/request-head.ts";
import { HeldAnswer, type QueryAnswer, type QueryAsk } from "./query-ask.ts";
import { type Outcome, QueryExchange } from "./query-exchange.ts";
import { QueryFigures } from "./query-figures.ts";
import type { QueryForward } from "./query-forward.ts";
import { type Slot, Slots } from "./slots.ts";
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
  readonly figures: UpstreamFigures;
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

function toBody(body: Buffer | Buffer[]): Buffer {
  return Array.isArray(body) ? Buffer.concat(body) : body;
}

/**
 * Waits for a slot.
 *
 * @param onGone has `leave` called when the asker goes away; returns what undoes that
 * @returns undefined if the asker went away meanwhile
 * @throws Refusal `upstream_overloaded` if too many wait, or after `maxWait` milliseconds
 */
async function waitForSlot(
  slots: Slots,
  user: string,
  maxWait: number,
  onGone: (leave: () => void) => () => void,
): Promise<Slot | undefined> {
  const place = slots.wait(user);
  if (place === undefined) throw overloaded();
  let isGone = false;
  const forget = onGone(() => {
    isGone = true;
    place.leave();
  });
  const timer = setTimeout(place.leave, maxWait);
  const slot = await place.turn;
  clearTimeout(timer);
  forget();
  if (slot === undefined && !isGone) throw overloaded();
  return slot;
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

/** Opens the way to the upstream; nothing is connected until it is needed. */
export function createQueryClient(options: QueryClientOptions): QueryClient {
  const { target, connections, connectTimeout, responseTimeout } = options;
  const { clientTimeout = CLIENT_TIMEOUT_MS } = options;
  const limits = { responseTimeout, clientTimeout };
  const pool = new ConnectionPool(target, { connect: connectTimeout, response: responseTimeout });
  const start = `POST /query HTTP/1.1\r\nhost: ${hostHeader(target)}\r\nconnection: keep-alive\r\n`;
  // Queries wait here and not in the pool, so that one whose client left is forgotten at once, and
  // no user waits for another one's flood.
  const slots = new Slots(connections, connections * WAITING_PER_CONNECTION);
  const figures = new QueryFigures(slots);

  function headOf(headers: RequestFields, body: Buffer): string {
    return `${start}content-length: ${body.length}\r\n${fieldLines(headers)}\r\n`;
  }

  function attempt(connection: Connection, query: QueryForward, body: Buffer): Promise<Outcome> {
    return new Promise((settle) => {
      const exchange = new QueryExchange(query, connection, limits, figures, settle);
      connection.send(headOf(query.headers, body), body, exchange);
    });
  }

  async function wait(
    user: string,
    onGone: (leave: () => void) => () => void,
  ): Promise<Slot | undefined> {
    const startedAt = performance.now();
    try {
      return await waitForSlot(slots, user, responseTimeout, onGone);
    } finally {
      figures.waits.add((performance.now() - startedAt) / 1000);
    }
  }

  async function forwardOn(query: QueryForward): Promise<void> {
    if (query.response.destroyed) return;
    const body = toBody(query.body);
    let outcome = await attempt(pool.take(), query, body);
    // On a new connection: the retry must not meet another stale one.
    if (outcome === "again")
      outcome = await attempt(pool.open(), { ...query, isRead: false }, body);
    if (outcome instanceof Refusal) throw outcome;
  }

  return {
    figures,
    async forward(query) {
      const { user, response } = query;
      const slot = slots.tryTake(user) ?? (await wait(user, whenClosed(response)));
      if (slot === undefined) return;
      try {
        await forwardOn(query);
      } finally {
        slots.release(slot);
      }
    },
    async ask({ user, signal, headers, body }) {
      const slot = slots.tryTake(user) ?? (await wait(user, whenAborted(signal)));
      if (slot === undefined) throw new Refusal("upstream_broken", { detail: "given up" });
      try {
        const connection = pool.take();
        const held = new HeldAnswer(connection, signal, figures.answers);
        connection.send(headOf(headers, body), body, held);
        return await held.answer;
      } finally {
        slots.release(slot);
      }
    },
    async close() {
      pool.close();
    },
  };
}

function hostHeader({ origin, socketPath }: UpstreamTarget): string {
  return socketPath === undefined ? new URL(origin).host : "localhost";
}
