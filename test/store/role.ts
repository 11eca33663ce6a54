/** The store's role, made as `deploy/replicas/store.sql` says. */
import { deployed, fill } from "../deploy/programs.ts";
import type { PostgresServer } from "../engine/postgres/server.ts";

/** The server of tests has a superuser of the name that the file gives the role. */
export const storeRole = "replicas";

/**
 * Runs the file without `psql`, which a machine may lack.
 *
 * @returns the store's URL
 */
export async function makeRole(server: PostgresServer): Promise<string> {
  const text = fill(deployed("replicas/store.sql"), {
    "create role gatehouse": `create role ${storeRole}`,
    "to gatehouse;": `to ${storeRole};`,
    "authorization gatehouse;": `authorization ${storeRole};`,
    ":'password'": "'a password'",
  });
  const [before = "", after = ""] = text
    .replaceAll(/^\\set .*$/gm, "")
    .split("\n\\connect gatehouse\n");
  // One by one: PostgreSQL makes databases outside of transactions alone.
  for (const statement of before.split(";\n")) await server.sql(statement);
  await server.sql(after, "gatehouse");
  return server.url("gatehouse", storeRole);
}
