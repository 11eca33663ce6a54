import { setTimeout as delay } from "node:timers/promises";
import { Client, DatabaseError, Pool, type PoolClient, types } from "pg";
import { parseAddress, type ServerAddress } from "../engine/postgres/address.ts";
import { Refusal } from "../refusal.ts";
import { parseExact } from "./log.ts";

/** Connections of one process, at most: polls, reads, and the one write that is under way. */
const CONNECTIONS = 6;
/** Milliseconds to take a connection (unless the URL says so), and to answer a statement. */
const CONNECT_TIMEOUT_MS = 2000;
const STATEMENT_TIMEOUT_MS = 15_000;
/** Milliseconds for a statement that has nothing to do: a connection that takes longer is dead. */
const BEGIN_TIMEOUT_MS = 4000;
const IDLE_TIMEOUT_MS = 60_000;
/** Milliseconds after which a statement is given up that somebody waits for, or that comes again. */
export const SHORT_TIMEOUT_MS = 4000;
/**
 * Milliseconds after which the server ends a transaction that says nothing: a process that is cut
 * off or stopped in the middle of one does not keep the others from writing.
 */
const SILENCE_MS = 10_000;

/** The channel of the notifications that the version has grown. */
export const CHANNEL = "gatehouse";

/** A row of an answer; the values are what the statement says. */
export type Row = Readonly<Record<string, unknown>>;

/** Sends a statement with its values, and returns the rows; at most so many milliseconds later. */
export type Query = (sql: string, values?: readonly unknown[], timeout?: number) => Promise<Row[]>;

function asked(sql: string, values: readonly unknown[] = [], timeout = STATEMENT_TIMEOUT_MS) {
  return { text: sql, values: [...values], query_timeout: timeout };
}

/**
 * The PostgreSQL database that replicas share, by a connection pool. Whatever keeps a statement
 * from being carried out is a Refusal `store_unreachable`.
 */
export interface Database {
  /** Carries out one statement by itself. */
  readonly query: Query;
  /**
   * Carries out several as one transaction, which is undone if `work` throws.
   *
   * @throws Refusal `store_uncertain` if nobody knows whether it was committed
   */
  transaction<Result>(work: (query: Query) => Promise<Result>, isolation?: string): Promise<Result>;
  /** Calls `onNotice` at each notification, as far as they come; a poll finds what they miss. */
  listen(onNotice: () => void): { close(): Promise<void> };
  close(): Promise<void>;
}

const INT8 = 20;
const JSON_TYPES = [114, 3802];

/** Versions are numbers, which a double holds for long enough; JSON keeps the digits of numbers. */
function getTypeParser(oid: number, format?: "text" | "binary"): (text: string) => unknown {
  if (oid === INT8) return Number;
  if (JSON_TYPES.includes(oid)) return parseExact;
  return types.getTypeParser(oid, format);
}

/** What a failure says, without what may stand in a row. */
function detailOf(error: unknown): string {
  if (error instanceof DatabaseError) return `${error.message} (${error.code})`;
  if (!(error instanceof Error)) return "unknown";
  const code = "code" in error ? String(error.code) : "";
  return error.message || code || error.name;
}

function unreachable(cause: unknown): Refusal {
  return new Refusal("store_unreachable", { detail: detailOf(cause), cause });
}

function settingsOf(address: ServerAddress) {
  const { host, port, user, database, ssl, connectTimeout = CONNECT_TIMEOUT_MS } = address;
  return {
    ...{ host, port, user, database, ssl },
    password: () => address.password(database),
    connectionTimeoutMillis: connectTimeout,
    keepAlive: true,
    application_name: address.applicationName,
    fallback_application_name: "gatehouse",
    types: { getTypeParser },
  };
}

/** Milliseconds between two tries to listen. */
const LISTEN_AGAIN_MS = 1000;

/** Listens on a connection of its own, again and again. */
function listen(address: ServerAddress, onNotice: () => void): { close(): Promise<void> } {
  const closing = new AbortController();
  const { signal } = closing;

  async function once(): Promise<void> {
    const client = new Client(settingsOf(address));
    const ended = new Promise((resolve) => client.once("end", resolve));
    const end = () => void client.end().catch(() => {});
    client.on("error", () => {});
    client.on("notification", onNotice);
    signal.addEventListener("abort", end);
    try {
      await client.connect();
      await client.query(`listen ${CHANNEL}`);
      if (!signal.aborted) await ended;
    } finally {
      signal.removeEventListener("abort", end);
      end();
    }
  }

  async function follow(): Promise<void> {
    while (!signal.aborted) {
      await once().catch(() => {});
      await delay(LISTEN_AGAIN_MS, undefined, { signal, ref: false }).catch(() => {});
    }
  }

  const following = follow();
  return {
    async close() {
      closing.abort();
      await following;
    },
  };
}

/** Sends statements on a connection that somebody has taken out. */
function queryOn(client: PoolClient): Query {
  return async (...statement) => {
    try {
      return (await client.query<Row>(asked(...statement))).rows;
    } catch (error) {
      throw unreachable(error);
    }
  };
}

/** Makes the connection pool; it connects when it is first asked. @throws Error about the URL */
export function openDatabase(url: string): Database {
  const address = parseAddress(url, "store.url");
  const pool = new Pool({
    ...settingsOf(address),
    max: CONNECTIONS,
    idleTimeoutMillis: IDLE_TIMEOUT_MS,
    allowExitOnIdle: true,
  });
  // A connection that breaks without work is replaced when the next one is wanted.
  pool.on("error", () => {});

  async function connect(): Promise<PoolClient> {
    try {
      return await pool.connect();
    } catch (error) {
      throw unreachable(error);
    }
  }

  async function commit(client: PoolClient): Promise<void> {
    try {
      await client.query(asked("commit"));
    } catch (error) {
      const detail = detailOf(error);
      throw new Refusal("store_uncertain", { detail, cause: error });
    }
  }

  return {
    async query(...statement) {
      try {
        return (await pool.query<Row>(asked(...statement))).rows;
      } catch (error) {
        throw unreachable(error);
      }
    },
    async transaction(work, isolation = "read committed") {
      const client = await connect();
      let isGood = false;
      try {
        const query = queryOn(client);
        const bound = `set local idle_in_transaction_session_timeout = ${SILENCE_MS}`;
        await query(`begin isolation level ${isolation}; ${bound}`, [], BEGIN_TIMEOUT_MS);
        const result = await work(query);
        await commit(client);
        isGood = true;
        return result;
      } finally {
        // The server undoes what a connection that is closed has not committed.
        client.release(!isGood);
      }
    },
    listen: (onNotice) => listen(address, onNotice),
    close: () => pool.end(),
  };
}
