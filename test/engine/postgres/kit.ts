import { once } from "node:events";
import { type AddressInfo, connect, createServer, type Socket } from "node:net";
import { pino } from "pino";
import t from "tap";
import type { Teardown } from "../guarded.ts";
import { type Answer, query } from "../kit.ts";
import { type Engine, type EngineOptions, startEngine } from "../server.ts";
import { type PostgresServer, startPostgres } from "./server.ts";

let server: Promise<PostgresServer> | undefined;

/** One server for all tests of a file. */
export function sharedServer(): Promise<PostgresServer> {
  server ??= startPostgres(t);
  return server;
}

type Rows = Promise<Record<string, unknown>[]>;

export interface PostgresEngine {
  readonly engine: Engine;
  readonly database: string;
  readonly url: string;
  ask(body: object | string): Promise<Answer>;
  sql(...statements: string[]): Rows;
}

/** An engine over a new database with the schema `main`. */
export async function freshPostgres(test: Teardown): Promise<PostgresEngine> {
  const shared = await sharedServer();
  const database = await shared.createDatabase();
  const url = shared.url(database);
  const engine = await startOn(test, url);
  const ask = (body: object | string): Promise<Answer> => query(engine.address, body);
  const sql = (...statements: string[]): Rows => shared.sql(statements.join(";"), database);
  await ask({ CreateDatabase: { database: "main" } });
  return { engine, database, url, ask, sql };
}

export async function startOn(
  test: Teardown,
  url: string,
  options: Pick<EngineOptions, "queryTimeLimit" | "databases"> = {},
): Promise<Engine> {
  const log = pino({ level: "silent" });
  const engine = await startEngine({ url, log, ...options });
  test.teardown(() => engine.close());
  return engine;
}

/** A port whose connections `pass` joins with those to the shared server. */
export async function proxyTo(
  test: Teardown,
  pass: (client: Socket, server: Socket) => void,
): Promise<number> {
  const { port } = await sharedServer();
  const proxy = createServer((client) => {
    const server = connect(port, "127.0.0.1");
    client.on("error", () => server.destroy());
    server.on("error", () => client.destroy());
    pass(client, server);
  });
  proxy.listen(0, "127.0.0.1");
  await once(proxy, "listening");
  test.teardown(() => proxy.close());
  return (proxy.address() as AddressInfo).port;
}

/** A proxy that counts round trips: how often the client sends after the server has sent. */
export async function countingProxy(
  test: Teardown,
): Promise<{ port: number; count: () => number }> {
  let count = 0;
  const port = await proxyTo(test, (client, server) => {
    let isClientsTurn = true;
    client.pipe(server).pipe(client);
    client.on("data", () => {
      if (isClientsTurn) count += 1;
      isClientsTurn = false;
    });
    server.on("data", () => {
      isClientsTurn = true;
    });
  });
  return { port, count: () => count };
}

/** A server that sends nothing. `whenLeft` resolves when a client disconnects. */
export async function silentServer(
  test: Teardown,
): Promise<{ port: number; whenLeft: Promise<void> }> {
  const { promise: whenLeft, resolve } = Promise.withResolvers<void>();
  const server = createServer((client) => {
    client
      .on("error", () => {})
      .on("close", () => resolve())
      .resume();
  });
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  test.teardown(() => server.close());
  const { port } = server.address() as AddressInfo;
  return { port, whenLeft };
}
