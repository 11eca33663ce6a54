import t, { type Test } from "tap";
import type { Engine } from "../../src/engine/engine.ts";
import { type Answer, freshEngine } from "./kit.ts";
import { freshMysql } from "./mysql/kit.ts";
import { freshPostgres } from "./postgres/kit.ts";

export type FreshEngine = (test: Test) => Promise<{
  readonly engine: Engine;
  ask(body: object | string): Promise<Answer>;
}>;

type Body = (t: Test, freshEngine: FreshEngine) => Promise<void>;

/** Runs a test over each database that the engine speaks. */
export function overEach(name: string, body: Body): void {
  overEachTransactional(name, body);
  t.test(`${name} (MySQL)`, (t) => body(t, freshMysql));
}

/** The same over those alone that can take back a table which was made or dropped. */
export function overEachTransactional(name: string, body: Body): void {
  t.test(`${name} (SQLite)`, (t) => body(t, freshEngine));
  t.test(`${name} (PostgreSQL)`, (t) => body(t, freshPostgres));
}
