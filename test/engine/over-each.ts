import t, { type Test } from "tap";
import { type Answer, freshEngine } from "./kit.ts";
import { freshMysql } from "./mysql/kit.ts";
import { freshPostgres } from "./postgres/kit.ts";
import type { Engine } from "./server.ts";

export interface Scene {
  readonly engine: Engine;
  ask(body: object | string): Promise<Answer>;
}

export type FreshEngine = (test: Test) => Promise<Scene>;

type Body = (t: Test, scene: Scene) => Promise<void>;

/**
 * Runs a test of what a query means, over SQLite. Generated Selects and the cases of
 * `gatehouse upstream test` hold the other databases to the same answers.
 */
export function overSqlite(name: string, body: Body): void {
  t.test(name, async (t) => body(t, await freshEngine(t)));
}

/**
 * Runs a test over each database that the engine supports, with a new engine each: for types,
 * errors, constraints, transactions and collations, which each database has of its own.
 */
export function overEach(name: string, body: Body): void {
  overEachTransactional(name, body);
  t.test(`${name} (MySQL)`, async (t) => body(t, await freshMysql(t)));
}

/** Only over databases that roll back a CreateTable or DropTable. */
export function overEachTransactional(name: string, body: Body): void {
  t.test(`${name} (SQLite)`, async (t) => body(t, await freshEngine(t)));
  t.test(`${name} (PostgreSQL)`, async (t) => body(t, await freshPostgres(t)));
}
