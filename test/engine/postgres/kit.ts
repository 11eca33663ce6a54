import { once } from "node:events";
import { type AddressInfo, connect, createServer, type Socket } from "node:net";
import { pino } from "pino";
import t from "tap";
import { type Engine, type EngineOptions, startEngine } from "../../../src/engine/engine.ts";
import { type Answer, query } from "../kit.ts";
import { type PostgresServer, startPostgres } from "./server.ts";

let server: Promise<PostgresServer> | undefined;

/** The server of this file's tests, started when it is first asked for. */
export function sharedServer(): Promise<PostgresServer> {
  server ??= startPostgres(t);
  return server;
}

export interface PostgresEngine {
  readonly engine: Engine;
  readonly database: string;
  ask(body: object | string): Promise<Answer>;
}

/** An engine that ends with the test, over a new database of the shared server with `main` in it. */
export async function freshPostgres(test: {
  teardown(work: () => unknown): void;
}): Promise<PostgresEngine> {
  const shared = await sharedServer();
  const database = await shared.createDatabase();
  const engine = await startOn(test, shared.url(database));
  const ask = (body: object | string): Promise<Answer> => query(engine.address, body);
  await ask({ CreateDatabase: { database: "main" } });
  return { engine, database, ask };
}

export async function startOn(
  test: { teardown(work: () => unknown): void },
  url: string,
  options: Pick<EngineOptions, "queryTimeLimit" | "databases"> = {},
): Promise<Engine> {
  const log = pino({ level: "silent" });
  const engine = await startEngine({ url, listen: "127.0.0.1:0", log, ...options });
  test.teardown(() => engine.close());
  return engine;
}

/** A port whose connections `pass` joins with those to the shared server. */
export async function wayTo(
  test: { teardown(work: () => unknown): void },
  pass: (client: Socket, server: Socket) => void,
): Promise<number> {
  const { port } = await sharedServer();
  const way = createServer((client) => {
    const server = connect(port, "127.0.0.1");
    client.on("error", () => server.destroy());
    server.on("error", () => client.destroy());
    pass(client, server);
  });
  way.listen(0, "127.0.0.1");
  await once(way, "listening");
  test.teardown(() => way.close());
  return (way.address() as AddressInfo).port;
}

/** A way to the shared server that counts its round trips: how often the client speaks after the server. */
export async function countedWay(test: {
  teardown(work: () => unknown): void;
}): Promise<{ port: number; count: () => number }> {
  let count = 0;
  const port = await wayTo(test, (client, server) => {
    let isServersTurn = false;
    client.pipe(server).pipe(client);
    client.on("data", () => {
      if (!isServersTurn) count += 1;
      isServersTurn = true;
    });
    server.on("data", () => {
      isServersTurn = false;
    });
  });
  return { port, count: () => count };
}

/** A server that takes connections and says nothing; `whenLeft` resolves when one has been given up. */
export async function silentServer(test: {
  teardown(work: () => unknown): void;
}): Promise<{ port: number; whenLeft: Promise<void> }> {
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
