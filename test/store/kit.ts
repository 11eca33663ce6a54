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
import { runWarm } from "../kit/warm-command.ts";

/** Where a test registers what ends with it. */
export type Teardown = Pick<Test, "teardown">;

/** Keys of `[store]` beside its URL. */
export interface StoreSettings {
  readonly access?: "store" | "file";
  readonly maxStaleness?: number;
  readonly mcp?: string;
}

export function storeConfig(
  url: string,
  { access = "store", maxStaleness = 10, mcp = "enabled = false" }: StoreSettings,
): string {
  return `[mcp]\n${mcp}\n[store]\nurl = "${url}"\naccess = "${access}"\nmax_staleness = ${maxStaleness}\n`;
}

const MAX_STARTS = 20;

/** Repeats a start that loses the store on the way, as on a busy machine with a short lease. */
export async function startWithRetries<Started>(start: () => Promise<Started>): Promise<Started> {
  for (let tries = 1; ; tries++) {
    try {
      return await start();
    } catch (error) {
      const isStoreLost = error instanceof Error && /does not (answer|respond)/.test(error.message);
      if (!isStoreLost || tries === MAX_STARTS) throw error;
    }
  }
}

export type StoreServer = Pick<PostgresServer, "url" | "sql" | "createDatabase" | "port">;

export class TestStore {
  readonly #t: Teardown;
  readonly server: StoreServer;
  readonly database: string;
  /** The service directory of the host that ran `store init`. */
  readonly home: string;
  readonly #settings: StoreSettings;
  readonly #upstream: string;

  constructor(
    t: Teardown,
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

  /** The URL by another port, such as that of a `Wire`. */
  urlBy({ port }: { readonly port: number }): string {
    return this.url.replace(`:${this.server.port}/`, `:${port}/`);
  }

  async run(flags: string[], input = "", root = projectRoot): Promise<CommandResult> {
    const env = { GATEHOUSE_ADMIN_PASSWORD: ADMIN_PASSWORD };
    if (root !== projectRoot) return runCommand(this.home, flags, { env, input, root });
    return runWarm(this.home, flags, input, env);
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

  /** The service directory of another host, with a copy of the key file. */
  makeHome(): string {
    const home = temporaryHome(this.#t);
    copyFileSync(path.join(this.home, "store.key"), path.join(home, "store.key"));
    return home;
  }

  async replica(
    url = this.url,
    home = this.makeHome(),
    more = "",
    options: Pick<RunOptions, "port" | "root" | "auth" | "upstream" | "flags"> = {},
  ): Promise<TestGateway> {
    const config = storeConfig(url, this.#settings) + more;
    const run = { upstream: this.#upstream, ...options, home, config };
    return startWithRetries(() => startGateway(this.#t, run));
  }

  async replicas(count: number, auth = ""): Promise<[TestGateway, TestGateway, ...TestGateway[]]> {
    const start = () => this.replica(this.url, this.makeHome(), "", { auth });
    const [one, two, ...others] = await Promise.all(Array.from({ length: count }, start));
    if (one === undefined || two === undefined) throw new Error("fewer than two replicas");
    return [one, two, ...others];
  }

  /** Adds a user with the password `<name> password`, and perhaps a role on `main`. */
  async addUser(name: string, role?: string): Promise<void> {
    await this.good(["user", "add", name, "--password-stdin"], `${name} password\n`);
    if (role !== undefined) await this.good(["access", "grant", name, "main", role]);
  }

  /** @param text TOML to append to the users and grants of the store */
  async addAccess(text: string): Promise<void> {
    const file = path.join(this.home, "applied.toml");
    writeFileSync(file, `${await this.good(["access", "export"])}\n${text}`);
    await this.good(["access", "apply", file]);
  }

  sql(statements: string): Promise<Record<string, unknown>[]> {
    return this.server.sql(statements, this.database);
  }
}

/** Creates a store with an administrator. @param server by default a new PostgreSQL */
export async function makeStore(
  t: Teardown,
  settings: StoreSettings = {},
  server?: StoreServer,
  database?: string,
): Promise<TestStore> {
  const own = server ?? (await startPostgres(t));
  const upstream = await new RecordingUpstream().listen(t);
  const name = database ?? (await own.createDatabase());
  // The schema is found without a search path, which has only that of a role with its name.
  await own.sql(`alter database ${name} set search_path = public`);
  const store = new TestStore(t, own, name, settings, upstream.url);
  await store.initialize();
  return store;
}

export async function queryStatus(gateway: TestGateway, token: string): Promise<number> {
  const answer = await gateway.query(select, token);
  return answer.status;
}

export const select = { Select: { database: "main", from: "users", columns: ["*"] } };
export const insert = { Insert: { database: "main", table: "users", values: [{ id: 1 }] } };

export async function untilDeciding(gateway: TestGateway): Promise<void> {
  await eventually("the replica decides", async () => {
    const { status } = await gateway.request("/readyz");
    return status === 200;
  });
}
