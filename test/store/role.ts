import { deployed, fill } from "../deploy/programs.ts";
import type { PostgresServer } from "../engine/postgres/server.ts";

/** Not `gatehouse` as in the file, because that is the superuser of the test server. */
export const storeRole = "replicas";

/** Runs an SQL file of `deploy/` without `psql`, which a machine may lack. */
export async function runSqlFile(
  server: PostgresServer,
  name: string,
  passages: Readonly<Record<string, string>> = {},
): Promise<void> {
  const text = fill(deployed(name), { ...passages, ":'password'": "'a password'" });
  const [first = "", ...others] = text.replaceAll(/^\\set .*$/gm, "").split(/^\\connect /m);
  // One by one, because PostgreSQL creates databases only outside of transactions.
  for (const statement of first.split(";\n")) await server.sql(statement);
  for (const other of others) {
    const [database, ...lines] = other.split("\n");
    await server.sql(lines.join("\n"), database);
  }
}

/** Creates the store's role and database. @returns its URL */
export async function makeRole(server: PostgresServer): Promise<string> {
  await runSqlFile(server, "replicas/store.sql", {
    "create role gatehouse": `create role ${storeRole}`,
    "to gatehouse;": `to ${storeRole};`,
    "authorization gatehouse;": `authorization ${storeRole};`,
  });
  return server.url("gatehouse", storeRole);
}
