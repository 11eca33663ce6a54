import type { Logger } from "pino";
import { EngineRefusal } from "../refusal.ts";
import type { Store } from "../store.ts";
import type { Dialect } from "./dialect.ts";
import { HealthCheck, reasonOf } from "./health-check.ts";
import { ConnectionPool, type ConnectionSource } from "./pool.ts";
import type { Session } from "./session.ts";
import { RemoteStore } from "./store.ts";

/** How long a server may take to answer at the start before it counts as not there, in milliseconds. */
const START_PATIENCE_MS = 5000;

/** How a store over a server is opened. */
export interface RemoteOptions {
  /** How long a query may take in the database, in milliseconds. */
  readonly timeLimit: number;
  readonly log: Logger;
  /** How many queries are carried out at a time. */
  readonly poolSize: number;
}

/** A server, and how it is spoken to. */
export interface Server<Leased extends Session> {
  readonly dialect: Dialect<Leased>;
  readonly connections: ConnectionSource<Leased>;
  readonly host: string;
  readonly port: number;
  /** Whom or what the server is asked for, for the message of a refusal. */
  readonly wanted: string;
}

/**
 * Opens a store over a server. One that is not there yet is waited for by answering 503.
 *
 * @throws Error that says why the server refuses the engine, without the password
 */
export async function openRemoteStore<Leased extends Session>(
  server: Server<Leased>,
  options: RemoteOptions,
): Promise<Store> {
  const { dialect, connections, host, port, wanted } = server;
  const { timeLimit, log, poolSize } = options;
  const check = new HealthCheck(connections, dialect, timeLimit);
  try {
    await check.run(START_PATIENCE_MS);
  } catch (error) {
    // It is too busy for now: that is no refusal.
    const isSlow = error instanceof EngineRefusal && error.code === "query_timeout";
    if (!isSlow && !dialect.failures.isUnavailable(error)) {
      await check.close();
      throw new Error(
        `${dialect.name} on ${host}:${port} refuses the engine for ${wanted}: ${reasonOf(error)}`,
      );
    }
    log.warn({ host, port, reason: reasonOf(error) }, `${dialect.name} cannot be reached yet`);
  }
  const pool = new ConnectionPool(connections, poolSize);
  return new RemoteStore({ dialect, pool, poolSize, check, timeLimit, log });
}
