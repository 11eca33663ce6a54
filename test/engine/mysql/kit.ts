import t from "tap";
import type { Teardown } from "../guarded.ts";
import { type Answer, query } from "../kit.ts";
import { startOn } from "../postgres/kit.ts";
import type { Engine } from "../server.ts";
import { type MysqlServer, startMysql } from "./server.ts";

let server: Promise<MysqlServer> | undefined;

/** One server for all tests of a file. */
export function sharedServer(): Promise<MysqlServer> {
  server ??= startMysql(t);
  return server;
}

export interface MysqlEngine {
  readonly engine: Engine;
  readonly url: string;
  ask(body: object | string): Promise<Answer>;
  sql(...statements: string[]): Promise<Record<string, unknown>[]>;
}

/** An engine over the shared server with only the database `main`. */
export async function freshMysql(test: Teardown): Promise<MysqlEngine> {
  const shared = await sharedServer();
  const databases = await shared.sql(
    `select schema_name as name from information_schema.schemata where schema_name not in
      ('mysql', 'sys', 'information_schema', 'performance_schema')`,
  );
  await shared.sql(...databases.map(({ name }) => `drop database \`${name}\``), "select 1");
  const engine = await startOn(test, shared.url);
  const ask = (body: object | string): Promise<Answer> => query(engine.address, body);
  await ask({ CreateDatabase: { database: "main" } });
  const sql = (...statements: string[]) => shared.sql(...statements);
  return { engine, url: shared.url, ask, sql };
}
