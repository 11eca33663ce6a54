import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { mkdtempSync, readFileSync, rmSync, statSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import path from "node:path";
import { text } from "node:stream/consumers";
import { Client } from "pg";
import { makeCertificate } from "../../kit/certificate.ts";
import { eventually } from "../../kit/eventually.ts";
import { freePort } from "../../kit/free-port.ts";
import { copyDirectory, preparedDirectory } from "../../kit/prepared.ts";
import { childrenOf, isAlive } from "../../kit/process-info.ts";
import { endGuard, type Teardown, untilAnswering } from "../guarded.ts";
import { findPrograms, giveToOwner, owner } from "./binaries.ts";

/** Tests survive no crash of the machine, so nothing waits for the disk. */
const settings = ["fsync=off", "deadlock_timeout=50ms", "listen_addresses=127.0.0.1", "ssl=on"];

/** Ends the server when standard input closes, however this process ends. */
const guard = `"$0" "$@" & server=$!; cat > /dev/null; kill -QUIT $server; wait $server`;

/** A server with PostgreSQL's protocol. */
export abstract class SqlServer {
  #databases = 0;

  abstract url(database?: string, user?: string): string;

  async sql(
    statements: string,
    database = "postgres",
    user = "gatehouse",
  ): Promise<Record<string, unknown>[]> {
    const client = new Client({ connectionString: this.url(database, user) });
    await client.connect();
    try {
      const result = await client.query(statements);
      return (Array.isArray(result) ? result.at(-1) : result).rows;
    } finally {
      await client.end();
    }
  }

  async createDatabase(): Promise<string> {
    this.#databases += 1;
    const name = `test_${this.#databases}`;
    await this.sql(`create database ${name}`);
    return name;
  }
}

export class PostgresServer extends SqlServer {
  readonly port: number;
  readonly #directory: string;
  readonly #programs: string;
  #guard: ChildProcess | undefined;

  constructor(directory: string, port: number) {
    super();
    this.#directory = directory;
    this.port = port;
    this.#programs = findPrograms(directory);
  }

  override url(database = "postgres", user = "gatehouse"): string {
    return `postgres://${user}@127.0.0.1:${this.port}/${database}`;
  }

  socketUrl(database: string): string {
    return `postgres://gatehouse@localhost:${this.port}/${database}?host=${this.#directory}`;
  }

  tlsUrl(database: string): string {
    const flags = `sslmode=verify-full&sslrootcert=${path.join(this.#data, "server.crt")}`;
    return `postgres://gatehouse@localhost:${this.port}/${database}?${flags}`;
  }

  async initialize(): Promise<void> {
    const { size } = statSync(path.join(this.#programs, "postgres"));
    const prepared = await preparedDirectory(`postgres-${size}`, (own) => this.#initialize(own));
    await copyDirectory(path.join(prepared, "data"), this.#data);
    const { cert, key } = makeCertificate("localhost");
    for (const [name, content] of Object.entries({ "server.crt": cert, "server.key": key })) {
      writeFileSync(path.join(this.#data, name), content, { mode: 0o600 });
      giveToOwner(path.join(this.#data, name));
    }
  }

  async #initialize(directory: string): Promise<void> {
    giveToOwner(directory);
    const flags = [
      "--username=gatehouse",
      "--auth=trust",
      "--encoding=UTF8",
      "--locale=C.UTF-8",
      "--wal-segsize=1",
    ];
    const child = spawn(
      path.join(this.#programs, "initdb"),
      ["-D", path.join(directory, "data"), "--no-sync", ...flags],
      { ...owner, cwd: directory, stdio: ["ignore", "ignore", "pipe"] },
    );
    const [errors, [code]] = await Promise.all([text(child.stderr), once(child, "exit")]);
    if (code !== 0) throw new Error(`initdb: ${errors}`);
  }

  async start(): Promise<void> {
    const socket = `unix_socket_directories=${this.#directory}`;
    const flags = [...settings, socket].flatMap((setting) => ["-c", setting]);
    const program = path.join(this.#programs, "postgres");
    this.#guard = spawn(
      "sh",
      ["-c", guard, program, "-D", this.#data, "-p", String(this.port), ...flags],
      { ...owner, cwd: this.#directory, stdio: ["pipe", "ignore", "ignore"] },
    );
    await untilAnswering(() => this.sql("select 1"));
  }

  async crash(): Promise<void> {
    const all = this.signal("SIGKILL");
    await eventually("the server is gone", () => !all.some(isAlive));
    await this.stop();
  }

  mainProcess(): number {
    return Number(readFileSync(path.join(this.#data, "postmaster.pid"), "utf8").split("\n")[0]);
  }

  /** Sends a signal to the server and all of its processes; returns their ids. */
  signal(signal: NodeJS.Signals): number[] {
    const main = this.mainProcess();
    const all = [main, ...childrenOf(main)];
    for (const pid of all) {
      try {
        process.kill(pid, signal);
      } catch (error) {
        // A process of a connection may have ended by itself.
        if (isAlive(pid)) throw error;
      }
    }
    return all;
  }

  async stop(): Promise<void> {
    const guard = this.#guard;
    this.#guard = undefined;
    await endGuard(guard);
  }

  /** Creates a user with a password; the others need none. */
  async requirePassword(user: string, password: string): Promise<void> {
    await this.sql(`create role ${user} login password '${password}'`);
    const rules = `host all ${user} 127.0.0.1/32 scram-sha-256\nhost all all 127.0.0.1/32 trust\n`;
    writeFileSync(path.join(this.#data, "pg_hba.conf"), rules);
    await this.sql("select pg_reload_conf()");
  }

  get #data(): string {
    return path.join(this.#directory, "data");
  }
}

export async function startPostgres(test: Teardown): Promise<PostgresServer> {
  const directory = mkdtempSync(path.join(tmpdir(), "gatehouse-postgres-"));
  giveToOwner(directory);
  test.teardown(() => rmSync(directory, { recursive: true, force: true }));
  const server = new PostgresServer(directory, await freePort());
  test.teardown(() => server.stop());
  await server.initialize();
  await server.start();
  return server;
}
