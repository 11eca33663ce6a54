import t, { type Test } from "tap";
import type { Engine } from "../../src/engine/engine.ts";
import { type Answer, freshEngine } from "./kit.ts";
import { freshPostgres } from "./postgres/kit.ts";

/** Starts an engine over an empty database `main`, which ends with the test. */
export type FreshEngine = (test: Test) => Promise<{
  readonly engine: Engine;
  ask(body: object | string): Promise<Answer>;
}>;

/** Runs a test over each database that the engine speaks. */
export function overEach(
  name: string,
  body: (t: Test, freshEngine: FreshEngine) => Promise<void>,
): void {
  t.test(`${name} (SQLite)`, (t) => body(t, freshEngine));
  t.test(`${name} (PostgreSQL)`, (t) => body(t, freshPostgres));
}
