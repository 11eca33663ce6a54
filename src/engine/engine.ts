import { once } from "node:events";
import { existsSync, lstatSync, unlinkSync } from "node:fs";
import type { Server } from "node:http";
import { connect } from "node:net";
import { dirname, resolve } from "node:path";
import type { Logger } from "pino";
import type { PostgresDatabases } from "./postgres/dialect.ts";
import type { RemoteOptions } from "./remote/store.ts";
import { createEngineServer } from "./server.ts";
import { bytesOf } from "./spool.ts";
import type { SchemaPath, Store } from "./store.ts";

const SOCKET_POLL_MS = 1000;

export type Endpoint =
  | { readonly kind: "socket"; readonly path: string }
  | { readonly kind: "port"; readonly host: string; readonly port: number };

/** The engine trusts every client that reaches it, so it never listens on a network. */
function parseEndpoint(listen: string): Endpoint {
  const path = /^unix:(.+)$/.exec(listen)?.[1];
  if (path !== undefined) return { kind: "socket", path: resolve(path) };
  const [, host, port] = /^(127\.0\.0\.1|localhost|\[::1\]):(\d{1,5})$/.exec(listen) ?? [];
  if (host !== undefined && Number(port) <= 65535) {
    return { kind: "port", host, port: Number(port) };
  }
  throw new Error(
    `The engine cannot listen on "${listen}": use unix:/path or a loopback address such as 127.0.0.1:9090.`,
  );
}

/** Returns the address in a client's form: `unix:/path`, or an `http:` URL with the actual port. */
export async function listen(server: Server, endpoint: Endpoint): Promise<string> {
  if (endpoint.kind === "port") {
    server.listen(endpoint.port, endpoint.host.replace(/[[\]]/g, ""));
    await once(server, "listening");
    const address = server.address();
    const port = typeof address === "object" && address !== null ? address.port : endpoint.port;
    return `http://${endpoint.host}:${port}`;
  }
  const directory = dirname(endpoint.path);
  // Without this check, the system's error for a missing directory looks like a denied permission.
  if (!existsSync(directory)) {
    throw new Error(`Socket directory ${directory} does not exist. Create it with mkdir -m 700.`);
  }
  await removeStaleSocket(endpoint.path);
  listenOwnerOnly(server, endpoint.path);
  await once(server, "listening");
  return `unix:${endpoint.path}`;
}

/**
 * Listens again after the socket's file was removed, since clients cannot find the engine without
 * it. Requests in flight continue. Returns a function that stops polling.
 */
function keepListening(server: Server, endpoint: Endpoint, log: Logger): () => void {
  if (endpoint.kind === "port") return () => {};
  const { path } = endpoint;
  let isBusy = false;
  let hasWarned = false;
  async function poll(): Promise<void> {
    if (isBusy || existsSync(path)) return;
    isBusy = true;
    try {
      server.close();
      listenOwnerOnly(server, path);
      await once(server, "listening");
      log.warn({ path }, "the engine's socket was removed; listening again");
      hasWarned = false;
    } catch (error) {
      if (!hasWarned) log.error({ err: error, path }, "the engine's socket was removed");
      hasWarned = true;
    } finally {
      isBusy = false;
    }
  }
  const timer = setInterval(() => void poll(), SOCKET_POLL_MS);
  return () => clearInterval(timer);
}

/** Mode 0600. The socket is bound before `listen` returns, so the umask affects nothing else. */
function listenOwnerOnly(server: Server, path: string): void {
  const umask = process.umask(0o177);
  try {
    server.listen(path);
  } finally {
    process.umask(umask);
  }
}

/** A killed engine leaves its socket behind. */
async function removeStaleSocket(path: string): Promise<void> {
  const status = lstatSync(path, { throwIfNoEntry: false });
  if (status === undefined) return;
  if (!status.isSocket()) throw new Error(`${path} exists and is not a socket.`);
  if (await answers(path)) throw new Error(`Another process listens on ${path}.`);
  unlinkSync(path);
}

async function answers(path: string): Promise<boolean> {
  const socket = connect(path);
  try {
    await once(socket, "connect");
    return true;
  } catch (error) {
    if (error instanceof Error && "code" in error && error.code === "ECONNREFUSED") return false;
    throw error;
  } finally {
    socket.destroy();
  }
}

export interface EngineOptions {
  /** `sqlite:DIRECTORY`, `postgres://user@host:port/database` or `mysql://user@host:port/`. */
  readonly url: string;
  /** Defaults to schemas of the URL's database. */
  readonly databases?: PostgresDatabases | undefined;
  /** `unix:/path`, or a loopback `host:port` (port 0 takes a free one). */
  readonly listen: string;
  /** The `Authorization` header that every request must carry, if any. */
  readonly authorization?: string | undefined;
  /** Milliseconds that the database may take for one query; default 30 seconds. */
  readonly queryTimeLimit?: number | undefined;
  /** Concurrent queries on a database server; default 16. */
  readonly poolSize?: number | undefined;
  readonly log: Logger;
}

export interface Engine {
  readonly address: string;
  /** Logs the tables whose names queries cannot contain. Never rejects. */
  reportUnavailable(): Promise<void>;
  close(): Promise<void>;
}

/**
 * Starts the SQL adapter, which runs the queries of every client that reaches it.
 *
 * @throws Error for an unusable URL, address or directory
 */
export async function startEngine(options: EngineOptions): Promise<Engine> {
  const endpoint = parseEndpoint(options.listen);
  if (options.authorization === "") throw new Error("The engine's authorization is empty.");
  const { url, log, databases = "schemas", queryTimeLimit = 30_000, poolSize = 16 } = options;
  const store = await openStore(url, { timeLimit: queryTimeLimit, log, databases, poolSize });
  const { server, drain } = createEngineServer({
    store,
    log,
    loopbackHostOnly: endpoint.kind === "port",
    authorization: options.authorization,
  });
  try {
    const address = await listen(server, endpoint);
    log.info({ address }, "engine listening");
    const stopPolling = keepListening(server, endpoint, log);
    return {
      address,
      reportUnavailable: () => reportUnavailable(store, log).catch(() => {}),
      async close() {
        stopPolling();
        await drain();
        await store.close();
      },
    };
  } catch (error) {
    await store.close();
    throw error;
  }
}

/** @throws Error if the database cannot be reached yet */
async function reportUnavailable(store: Store, log: Logger): Promise<void> {
  const read = async (path: SchemaPath) => {
    const chunks = bytesOf(await store.readSchema(path, new AbortController()));
    return JSON.parse(Buffer.concat(await Array.fromAsync(chunks)).toString()).data;
  };
  for (const database of (await read({})).databases) {
    const { unavailable: tables } = await read({ database });
    const problem = "queries cannot contain the names of these tables; create views for them";
    if (tables !== undefined) log.warn({ database, tables }, problem);
  }
}

async function openStore(
  url: string,
  options: RemoteOptions & { readonly databases: PostgresDatabases },
): Promise<Store> {
  const scheme = url.slice(0, url.indexOf(":") + 1);
  // Drivers are loaded on demand, since the others would only delay the start.
  switch (scheme) {
    case "sqlite:": {
      const directory = url.replace(/^sqlite:(\/\/(?=\/))?/, "");
      if (directory === "") {
        throw new Error("The engine's URL names no directory. Use sqlite:DIRECTORY.");
      }
      const { openSqliteStore } = await import("./sqlite/store.ts");
      return openSqliteStore(directory, options.timeLimit, options.log);
    }
    case "postgres:":
    case "postgresql:": {
      const { openPostgresStore } = await import("./postgres/dialect.ts");
      return openPostgresStore(url, options);
    }
    case "mysql:":
    case "mariadb:": {
      const { openMysqlStore } = await import("./mysql/dialect.ts");
      return openMysqlStore(url, options);
    }
    default:
      throw new Error(
        `The engine cannot open a database of the kind "${scheme || url}": use sqlite:DIRECTORY, postgres://user@host:port/database or mysql://user@host:port/.`,
      );
  }
}
