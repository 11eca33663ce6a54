import { DatabaseSync } from "node:sqlite";
import type { Test } from "tap";
import { freshEngine } from "./kit.ts";
import type { Scene } from "./over-each.ts";

/** An engine, and SQL of another program. */
export interface LegacyScene extends Scene {
  sql(...statements: string[]): Promise<unknown>;
}

export async function freshSqlite(test: Test): Promise<LegacyScene> {
  const scene = await freshEngine(test);
  return {
    ...scene,
    async sql(...statements) {
      const connection = new DatabaseSync(`${scene.directory}/data/main.sqlite`);
      for (const statement of statements) connection.exec(statement.replaceAll("main.", ""));
      connection.close();
    },
  };
}
