import { readdirSync, rmSync } from "node:fs";
import { DatabaseSync } from "node:sqlite";
import t, { type Test } from "tap";
import { type Answer, createDatabase, dropDatabase, freshEngine, send } from "./kit.ts";
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

let sqlite: ReturnType<typeof freshEngine> | undefined;

/** The engine that all tests of a file share, over a new file for `main`, and no other. */
export async function freshSqlite() {
  sqlite ??= freshEngine(t);
  const scene = await sqlite;
  for (const name of readdirSync(`${scene.directory}/data`)) {
    if (name !== ".engine.lock") rmSync(`${scene.directory}/data/${name}`, { recursive: true });
  }
  await scene.ask(createDatabase("main"));
  const sql = async (...statements: string[]) => {
    using connection = new DatabaseSync(`${scene.directory}/data/main.sqlite`);
    for (const statement of statements) connection.exec(statement.replaceAll("main.", ""));
  };
  return { ...scene, sql };
}

const servers = { PostgreSQL: freshPostgres, MySQL: freshMysql };
type Kind = "SQLite" | keyof typeof servers;

const opened = new Map<Kind, Promise<Scene>>();

/** The engine that all tests of a file share, with the database `main` alone, empty. */
export async function sharedScene(kind: Kind): Promise<Scene> {
  if (kind === "SQLite") return freshSqlite();
  const scene = opened.get(kind) ?? servers[kind](t);
  opened.set(kind, scene);
  await empty(await scene);
  return scene;
}

function over(kind: Kind, name: string, body: Body): void {
  t.test(name, async (test) => body(test, await sharedScene(kind)));
}

async function empty({ engine, ask }: Scene): Promise<void> {
  const { body } = await send(engine.address, { path: "/schema" });
  for (const database of Object(body.data).databases) {
    if (database !== "public") await ask(dropDatabase(database));
  }
  await ask(createDatabase("main"));
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
