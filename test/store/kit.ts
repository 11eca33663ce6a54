import { copyFileSync, writeFileSync } from "node:fs";
import path from "node:path";
import type { Test } from "tap";
import { type PostgresServer, startPostgres } from "../engine/postgres/server.ts";
import { eventually } from "../kit/eventually.ts";
import {
  ADMIN_PASSWORD,
  type RunOptions,
  startGateway,
  type TestGateway,
  temporaryHome,
  writeConfiguration,
} from "../kit/gateway.ts";
import { type CommandResult, projectRoot, runCommand } from "../kit/process.ts";
import { RecordingUpstream } from "../kit/upstream.ts";

/** Keys of `[store]` beside its URL. */
export interface StoreSettings {
  readonly access?: "store" | "file";
  readonly maxStaleness?: number;
  readonly mcp?: string;
}

/** The section of a store, and that of MCP. */
export function storeConfig(
  url: string,
  { access = "store", maxStaleness = 10, mcp = "enabled = false" }: StoreSettings,
): string {
  return `[mcp]\n${mcp}\n[store]\nurl = "${url}"\naccess = "${access}"\nmax_staleness = ${maxStaleness}\n`;
}

/** Where a store is made, and looked at past all replicas. */
export type StoreServer = Pick<PostgresServer, "url" | "sql" | "createDatabase" | "port">;

export class TestStore {
  readonly #t: Pick<Test, "teardown">;
  readonly server: StoreServer;
  readonly database: string;
  /** The service directory of the host on which the store was made. */
  readonly home: string;
  readonly #settings: StoreSettings;
  readonly #upstream: string;

  constructor(
    t: Pick<Test, "teardown">,
    server: StoreServer,
    database: string,
    settings: StoreSettings,
    upstream: string,
  ) {
    this.#t = t;
    this.server = server;
    this.database = database;
    this.home = temporaryHome(t);
    this.#settings = settings;
    this.#upstream = upstream;
  }

  get url(): string {
    return this.server.url(this.database);
  }

  /** The same by another port of this machine, such as a wire's. */
  urlBy({ port }: { readonly port: number }): string {
    return this.url.replace(`:${this.server.port}/`, `:${port}/`);
  }

  async run(flags: string[], input = "", root = projectRoot): Promise<CommandResult> {
    const env = { GATEHOUSE_ADMIN_PASSWORD: ADMIN_PASSWORD };
    return runCommand(this.home, flags, { env, input, root });
  }

  async good(flags: string[], input?: string, root?: string): Promise<string> {
    const { code, stdout, stderr } = await this.run(flags, input, root);
    if (code !== 0) throw new Error(`gatehouse ${flags.join(" ")}: ${stderr}`);
    return stdout;
  }

  async initialize(): Promise<void> {
    writeConfiguration(this.home, { config: storeConfig(this.url, this.#settings) });
    await this.good(["store", "init"]);
  }

  /** A service directory of another host, with the key file copied. */
  makeHome(): string {
    const home = temporaryHome(this.#t);
    copyFileSync(path.join(this.home, "store.key"), path.join(home, "store.key"));
    return home;
  }

  /** Starts a replica. @param url where it finds the store; by default where it is */
  async replica(
    url = this.url,
    home = this.makeHome(),
    more = "",
    options: Pick<RunOptions, "port" | "root" | "auth" | "upstream" | "flags"> = {},
  ): Promise<TestGateway> {
    const config = storeConfig(url, this.#settings) + more;
    return startGateway(this.#t, { upstream: this.#upstream, ...options, home, config });
  }

  async replicas(count: number, auth = ""): Promise<[TestGateway, TestGateway, ...TestGateway[]]> {
    const start = () => this.replica(this.url, this.makeHome(), "", { auth });
    const [one, two, ...others] = await Promise.all(Array.from({ length: count }, start));
    if (one === undefined || two === undefined) throw new Error("fewer than two replicas");
    return [one, two, ...others];
  }

  async addAccess(text: string): Promise<void> {
    const file = path.join(this.home, "applied.toml");
    writeFileSync(file, `${await this.good(["access", "export"])}\n${text}`);
    await this.good(["access", "apply", file]);
  }

  sql(statements: string): Promise<Record<string, unknown>[]> {
    return this.server.sql(statements, this.database);
  }
}

/** A new store on a server of the test's own, in a database of its own, with an administrator. */
export async function makeStore(
  t: Pick<Test, "teardown">,
  settings: StoreSettings = {},
  server?: StoreServer,
  database?: string,
): Promise<TestStore> {
  const own = server ?? (await startPostgres(t));
  const upstream = await new RecordingUpstream().listen(t);
  const store = new TestStore(
    t,
    own,
    database ?? (await own.createDatabase()),
    settings,
    upstream.url,
  );
  await store.initialize();
  return store;
}

export async function queryStatus(gateway: TestGateway, token: string): Promise<number> {
  const answer = await gateway.query(select, token);
  return answer.status;
}

export const select = { Select: { database: "main", from: "users", columns: ["*"] } };
export const insert = { Insert: { database: "main", table: "users", values: [{ id: 1 }] } };

/** Waits until a replica decides again. */
export async function untilDeciding(gateway: TestGateway): Promise<void> {
  await eventually("the replica decides", async () => {
    const { status } = await gateway.request("/readyz");
    return status === 200;
  });
}
