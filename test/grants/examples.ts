/** The worked examples of docs/grants.md, put into a gateway as they are. */
import { readFileSync } from "node:fs";
import path from "node:path";
import t, { type Test } from "tap";
import { runWarm } from "../kit/warm-command.ts";
import { type Ask, openSite, type Site } from "./kit.ts";

export const project = path.join(import.meta.dirname, "../..");
export const directory = path.join(project, "docs/examples/grants");
export const tried = new Set<string>();

interface Example {
  readonly site: Site;
  readonly tokenOf: (username: string) => Promise<string>;
  readonly as: (username: string) => Promise<Ask>;
}

let shared: Promise<Site> | undefined;

/** Loads an example into the gateway that all of them share, with an empty database. */
export async function load(
  test: Test,
  name: string,
  change = (text: string) => text,
): Promise<Example> {
  tried.add(name);
  shared ??= openSite(t);
  const site = await shared;
  await empty(site);
  await site.allow(change(readFileSync(path.join(directory, name), "utf8")));
  const checked = await runWarm(site.gateway.home, ["config", "check"]);
  test.equal(checked.code, 0, checked.stdout + checked.stderr);
  const tokenOf = async (username: string) => {
    const { stdout } = await runWarm(site.gateway.home, ["token", "issue", username]);
    return stdout.trim();
  };
  return {
    site,
    tokenOf,
    async as(username) {
      const token = await tokenOf(username);
      return (query) => site.gateway.query(query, token);
    },
  };
}

async function empty({ gateway, admin, adminToken }: Site): Promise<void> {
  const namesIn = async (path: string, key: string): Promise<string[]> =>
    Object((await gateway.get(path, adminToken)).body.data)[key];
  for (const database of await namesIn("/schema", "databases")) {
    if (database !== "main") await admin({ DropDatabase: { database } });
  }
  for (const table of await namesIn("/schema/main", "tables")) {
    await admin({ DropTable: { database: "main", table } });
  }
}

export async function make(site: Site, table: string, rows: readonly object[], database = "main") {
  const columns = [
    { name: "id", type: "int", primary_key: true },
    ...Object.entries(rows[0] ?? {})
      .filter(([name]) => name !== "id")
      .map(([name, value]) => ({ name, type: typeof value === "number" ? "int" : "text" })),
  ];
  await site.admin({ CreateTable: { database, table, columns } });
  await site.admin({ Insert: { database, table, values: rows } });
}

export function select(
  from: string,
  columns: readonly string[],
  more: object = {},
  database = "main",
) {
  return { Select: { database, from, columns, ...more } };
}

export const one = { column: "id", cmp: "=", value: 1 };
