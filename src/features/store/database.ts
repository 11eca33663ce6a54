import { setTimeout as delay } from "node:timers/promises";
import { Client, type ClientConfig, DatabaseError, Pool, type PoolClient, types } from "pg";
import { Refusal } from "../../core/base/refusal.ts";
import { clientOptions, parseAddress, type ServerAddress } from "../../engine/postgres/address.ts";

/** Connections per process, for polls, reads and the one write in progress. */
const MAX_CONNECTIONS = 6;
/** Unless the URL sets a timeout. */
const CONNECT_TIMEOUT_MS = 2000;
const STATEMENT_TIMEOUT_MS = 15_000;
/** A connection that takes longer to begin a transaction is dead. */
const BEGIN_TIMEOUT_MS = 4000;
const IDLE_TIMEOUT_MS = 60_000;
/** For statements that are repeated or that a user waits for. */
export const SHORT_TIMEOUT_MS = 4000;
/** A process that is cut off or stopped in a transaction must not block all writers. */
const IDLE_TRANSACTION_TIMEOUT_MS = 10_000;

export const CHANNEL = "gatehouse";

export type Row = Readonly<Record<string, unknown>>;

function isInteger(value: unknown): value is { integer: string } {
  if (typeof value !== "object" || value === null || Object.keys(value).length > 1) return false;
  return "integer" in value && typeof value.integer === "string";
}

/** Reads what `writeExact` has written (log.ts). */
function parseExact(text: string): unknown {
  if (!text.includes('"integer"')) return JSON.parse(text);
  return JSON.parse(text, (_key, member: unknown) =>
    isInteger(member) ? BigInt(member.integer) : member,
  );
}

/** Runs a statement and returns its rows. `timeout` is in milliseconds. */
export type Query = (sql: string, values?: readonly unknown[], timeout?: number) => Promise<Row[]>;

function queryConfig(sql: string, values: readonly unknown[] = [], timeout = STATEMENT_TIMEOUT_MS) {
  return { text: sql, values: [...values], query_timeout: timeout };
}

export type Database = ReturnType<typeof openDatabase>;

const INT8 = 20;
const JSON_TYPES = [114, 3802];

/** Versions are bigints that fit into a double. JSON keeps all digits of its numbers. */
function getTypeParser(oid: number, format?: "text" | "binary"): (text: string) => unknown {
  if (oid === INT8) return Number;
  if (JSON_TYPES.includes(oid)) return parseExact;
  return types.getTypeParser(oid, format);
}

/** Without data that could come from a row, such as `DatabaseError.detail`. */
function failureDetail(error: unknown): string {
  if (error instanceof DatabaseError) return `${error.message} (${error.code})`;
  if (!(error instanceof Error)) return "unknown";
  const code = "code" in error ? String(error.code) : "";
  return error.message || code || error.name;
}

/** Also says when to retry. */
export function storeUnreachable(options: { detail?: string; cause?: unknown } = {}): Refusal {
  return new Refusal("store_unreachable", { ...options, retryAfter: 1 });
}

function unreachable(cause: unknown): Refusal {
  return storeUnreachable({ detail: failureDetail(cause), cause });
}

function settings(address: ServerAddress) {
  const options = clientOptions(address, address.database, CONNECT_TIMEOUT_MS);
  return { ...options, types: { getTypeParser } };
}

const RECONNECT_MS = 1000;

function listen(address: ServerAddress, onNotice: () => void): { close(): Promise<void> } {
  const closing = new AbortController();
  const { signal } = closing;

  async function once(): Promise<void> {
    const client = new Client(settings(address));
    const ended = new Promise((resolve) => client.once("end", resolve));
    const end = () => void client.end().catch(() => {});
    client.on("error", () => {});
    client.on("notification", onNotice);
    signal.addEventListener("abort", end);
    try {
      // A client that is ended while it connects never settles the promise.
      await Promise.race([client.connect(), ended]);
      if (signal.aborted) return;
      await client.query(`listen ${CHANNEL}`);
      if (!signal.aborted) await ended;
    } finally {
      signal.removeEventListener("abort", end);
      end();
    }
  }

  async function listenUntilClosed(): Promise<void> {
    while (!signal.aborted) {
      await once().catch(() => {});
      await delay(RECONNECT_MS, undefined, { signal, ref: false }).catch(() => {});
    }
  }

  const listening = listenUntilClosed();
  return {
    async close() {
      closing.abort();
      await listening;
    },
  };
}

function queryOn(client: Pool | PoolClient): Query {
  return async (...statement) => {
    try {
      return (await client.query<Row>(queryConfig(...statement))).rows;
    } catch (error) {
      throw unreachable(error);
    }
  };
}

/** `pg` leaves the socket open when it did not get the password. */
class ClosingClient extends Client {
  constructor(options?: ClientConfig) {
    super(options);
    this.connection.once("error", () => this.connection.stream.destroy());
  }
}

/**
 * The pool of this process, which connects on first use. Anything that prevents a statement from
 * running is a Refusal `store_unreachable`.
 *
 * @throws Error about the URL
 */
export function openDatabase(url: string) {
  const address = parseAddress(url, "store.url");
  const pool = new Pool({
    ...settings(address),
    Client: ClosingClient,
    max: MAX_CONNECTIONS,
    idleTimeoutMillis: IDLE_TIMEOUT_MS,
    allowExitOnIdle: true,
  });
  // An idle connection that breaks is replaced when the next one is needed.
  pool.on("error", () => {});

  return {
    query: queryOn(pool),
    /** Rolls back if `work` throws. @throws Refusal `store_uncertain` if a commit has no answer */
    async transaction<Result>(
      work: (query: Query) => Promise<Result>,
      isolation = "read committed",
    ): Promise<Result> {
      const client = await pool.connect().catch((error: unknown) => {
        throw unreachable(error);
      });
      let isGood = false;
      try {
        const query = queryOn(client);
        const limit = `set local idle_in_transaction_session_timeout = ${IDLE_TRANSACTION_TIMEOUT_MS}`;
        await query(`begin isolation level ${isolation}; ${limit}`, [], BEGIN_TIMEOUT_MS);
        const result = await work(query);
        await client.query(queryConfig("commit")).catch((cause: unknown) => {
          throw new Refusal("store_uncertain", { detail: failureDetail(cause), cause });
        });
        isGood = true;
        return result;
      } finally {
        // Closing the connection makes the server roll back what it has not committed.
        client.release(!isGood);
      }
    },
    /** Calls `onNotice` at each notification. Some can be lost, which polling covers. */
    listen: (onNotice: () => void) => listen(address, onNotice),
    close: () => pool.end(),
  };
}
