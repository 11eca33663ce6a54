import t from "tap";
import type { Engine } from "../../../src/engine/engine.ts";
import { type Answer, query } from "../kit.ts";
import { startOn } from "../postgres/kit.ts";
import { type MysqlServer, startMysql } from "./server.ts";

let server: Promise<MysqlServer> | undefined;

/** The server of this file's tests, started when it is first asked for. */
export function sharedServer(): Promise<MysqlServer> {
  server ??= startMysql(t);
  return server;
}

export interface MysqlEngine {
  readonly engine: Engine;
  ask(body: object | string): Promise<Answer>;
}

/** An engine that ends with the test, over the shared server with nothing but `main` in it. */
export async function freshMysql(test: {
  teardown(work: () => unknown): void;
}): Promise<MysqlEngine> {
  const shared = await sharedServer();
  const databases = await shared.sql(
    `select schema_name as name from information_schema.schemata where schema_name not in
      ('mysql', 'sys', 'information_schema', 'performance_schema')`,
  );
  await shared.sql(...databases.map(({ name }) => `drop database \`${name}\``), "select 1");
  const engine = await startOn(test, shared.url);
  const ask = (body: object | string): Promise<Answer> => query(engine.address, body);
  await ask({ CreateDatabase: { database: "main" } });
  return { engine, ask };
}
