/** Roles and databases, made as the SQL files in `deploy/replicas` say. */
import { deployed, fill } from "../deploy/programs.ts";
import type { PostgresServer } from "../engine/postgres/server.ts";

/** The server of tests has a superuser of the name that the file gives the role. */
export const storeRole = "replicas";

/** Runs such a file without `psql`, which a machine may lack. */
export async function runSqlFile(
  server: PostgresServer,
  name: string,
  passages: Readonly<Record<string, string>> = {},
): Promise<void> {
  const text = fill(deployed(name), { ...passages, ":'password'": "'a password'" });
  const [first = "", ...others] = text.replaceAll(/^\\set .*$/gm, "").split(/^\\connect /m);
  // One by one: PostgreSQL makes databases outside of transactions alone.
  for (const statement of first.split(";\n")) await server.sql(statement);
  for (const other of others) {
    const [database, ...lines] = other.split("\n");
    await server.sql(lines.join("\n"), database);
  }
}

/** Makes the store's role and database. @returns the store's URL */
export async function makeRole(server: PostgresServer): Promise<string> {
  await runSqlFile(server, "replicas/store.sql", {
    "create role gatehouse": `create role ${storeRole}`,
    "to gatehouse;": `to ${storeRole};`,
    "authorization gatehouse;": `authorization ${storeRole};`,
  });
  return server.url("gatehouse", storeRole);
}
