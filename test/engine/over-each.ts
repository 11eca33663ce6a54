import { DatabaseSync } from "node:sqlite";
import t, { type Test } from "tap";
import { type Answer, createDatabase, dropDatabase, dropTable, freshEngine, send } from "./kit.ts";
import { freshMysql } from "./mysql/kit.ts";
import { freshPostgres } from "./postgres/kit.ts";
import type { Engine } from "./server.ts";

export interface Scene {
  readonly engine: Engine;
  ask(body: object | string): Promise<Answer>;
  /** Runs statements as another program would. */
  sql(...statements: string[]): Promise<unknown>;
}

type Body = (t: Test, scene: Scene) => Promise<void>;

export async function freshSqlite(test: Test) {
  const scene = await freshEngine(test);
  const sql = async (...statements: string[]) => {
    using connection = new DatabaseSync(`${scene.directory}/data/main.sqlite`);
    for (const statement of statements) connection.exec(statement.replaceAll("main.", ""));
  };
  return { ...scene, sql };
}

const kinds = { SQLite: freshSqlite, PostgreSQL: freshPostgres, MySQL: freshMysql };
type Kind = keyof typeof kinds;

const opened = new Map<Kind, Promise<Scene>>();

/** The engine that all tests of a file share, with the database `main` alone, empty. */
export async function sharedScene(kind: Kind): Promise<Scene> {
  const scene = opened.get(kind) ?? kinds[kind](t);
  opened.set(kind, scene);
  await empty(await scene);
  return scene;
}

function over(kind: Kind, name: string, body: Body): void {
  t.test(name, async (test) => body(test, await sharedScene(kind)));
}

async function empty({ engine, ask }: Scene): Promise<void> {
  const namesIn = async (path: string, key: string): Promise<string[]> => {
    const { body } = await send(engine.address, { path });
    return Object(body.data)[key] ?? [];
  };
  for (const database of await namesIn("/schema", "databases")) {
    if (database !== "public") await ask(dropDatabase(database));
  }
  await ask(createDatabase("main"));
  // SQLite keeps `main`. A table that others refer to is dropped after them.
  for (let tables = [""]; tables.length > 0; ) {
    tables = await namesIn("/schema/main", "tables");
    for (const table of tables) await ask(dropTable(table));
  }
}

/**
 * Runs a test of what a query means, over SQLite. Generated Selects and the cases of
 * `gatehouse upstream test` hold the other databases to the same answers.
 */
export function overSqlite(name: string, body: Body): void {
  over("SQLite", name, body);
}

/**
 * Runs a test over each database that the engine supports: for types, errors, constraints,
 * transactions and collations, which each database has of its own.
 */
export function overEach(name: string, body: Body): void {
  overEachTransactional(name, body);
  over("MySQL", `${name} (MySQL)`, body);
}

/** Only over databases that roll back a CreateTable or DropTable. */
export function overEachTransactional(name: string, body: Body): void {
  over("SQLite", `${name} (SQLite)`, body);
  over("PostgreSQL", `${name} (PostgreSQL)`, body);
}
