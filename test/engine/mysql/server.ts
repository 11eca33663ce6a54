import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import {
  existsSync,
  mkdirSync,
  mkdtempSync,
  readFileSync,
  rmSync,
  statSync,
  writeFileSync,
} from "node:fs";
import { tmpdir } from "node:os";
import path from "node:path";
import { text } from "node:stream/consumers";
import { createConnection } from "mysql2/promise";
import { makeCertificate } from "../../kit/certificate.ts";
import { freePort } from "../../kit/free-port.ts";
import { copyDirectory, preparedDirectory } from "../../kit/prepared.ts";
import { endGuard, type Teardown, untilAnswering } from "../guarded.ts";

/** Commits survive a crash of the server but not of the machine, so they do not wait for the disk. */
const settings = [
  "--bind-address=127.0.0.1",
  "--innodb-buffer-pool-size=32M",
  "--innodb-flush-log-at-trx-commit=2",
  "--innodb-flush-method=nosync",
  "--key-buffer-size=1M",
  "--max-allowed-packet=16M",
  "--skip-log-bin",
];

/** A server of MySQL, such as `/usr/sbin/mysqld`. Without it, the tests use MariaDB. */
const mysqld = process.env.GATEHOUSE_MYSQLD;
export const isMariaDb = mysqld === undefined;
const mysqlSettings = [
  "--mysqlx=off",
  "--secure-file-priv=",
  "--loose-innodb-redo-log-capacity=16M",
  "--cte-max-recursion-depth=1000000",
  // As MariaDB, with dates of zeros.
  "--sql-mode=STRICT_TRANS_TABLES,ERROR_FOR_DIVISION_BY_ZERO,NO_ENGINE_SUBSTITUTION",
];
const mariaDbSettings = ["--skip-name-resolve", "--innodb-log-file-size=8M"];

const asRoot = process.getuid?.() === 0 ? ["--user=root"] : [];

/** Ends the server when standard input closes, however this process ends. */
const guard = `"$0" "$@" & server=$!; echo $server; cat > /dev/null; kill -KILL $server; wait $server`;

/** The collation by bytes, without padding. */
export const bytewise = isMariaDb ? "utf8mb4_nopad_bin" : "utf8mb4_0900_bin";

/** A table with the numbers from 1 in its column `seq`. */
export function series(count: number): string {
  if (isMariaDb) return `seq_1_to_${count}`;
  return `(with recursive counted (seq) as
    (select 1 union all select seq + 1 from counted where seq < ${count}) select seq from counted) as counted`;
}

export class MysqlServer {
  readonly port: number;
  readonly #directory: string;
  #guard: ChildProcess | undefined;
  #pid = 0;

  constructor(directory: string, port: number) {
    this.#directory = directory;
    this.port = port;
  }

  get url(): string {
    return `mysql://root@127.0.0.1:${this.port}/`;
  }

  get socketUrl(): string {
    return `mysql://root@localhost/?socket=${this.#socket}`;
  }

  get tlsUrl(): string {
    const ca = path.join(this.#directory, "server.crt");
    return `mysql://root@localhost:${this.port}/?ssl-mode=VERIFY_IDENTITY&ssl-ca=${ca}`;
  }

  /** For temporary tables. */
  get temporary(): string {
    return path.join(this.#directory, "tmp");
  }

  get log(): string {
    return path.join(this.#directory, "server.log");
  }

  async initialize(): Promise<void> {
    const { size } = statSync(findServer());
    await copyDirectory(await preparedDirectory(`mysql-${size}`, install), this.#data);
    mkdirSync(this.temporary);
    const { cert, key } = makeCertificate("localhost");
    for (const [name, content] of Object.entries({ "server.crt": cert, "server.key": key })) {
      writeFileSync(path.join(this.#directory, name), content, { mode: 0o600 });
    }
  }

  async start(): Promise<void> {
    const file = (name: string) => path.join(this.#directory, name);
    const flags = [
      "--no-defaults",
      `--datadir=${this.#data}`,
      `--port=${this.port}`,
      `--socket=${this.#socket}`,
      `--pid-file=${file("pid")}`,
      `--log-error=${this.log}`,
      // A starting server removes all temporary tables in its directory.
      `--tmpdir=${this.temporary}`,
      `--ssl-cert=${file("server.crt")}`,
      `--ssl-key=${file("server.key")}`,
      ...asRoot,
      ...settings,
      ...(mysqld === undefined ? mariaDbSettings : mysqlSettings),
    ];
    const child = spawn("sh", ["-c", guard, findServer(), ...flags], {
      stdio: ["pipe", "pipe", "ignore"],
    });
    this.#guard = child;
    const [pid] = await once(child.stdout, "data");
    this.#pid = Number(String(pid));
    await untilAnswering(() => this.sql("select 1"));
  }

  async crash(): Promise<void> {
    process.kill(this.#pid, "SIGKILL");
    await this.stop();
  }

  async stop(): Promise<void> {
    const guard = this.#guard;
    this.#guard = undefined;
    await endGuard(guard);
  }

  async sql(...statements: string[]): Promise<Record<string, unknown>[]> {
    const connection = await createConnection({ socketPath: this.#socket, user: "root" });
    try {
      let rows: unknown = [];
      for (const statement of statements) [rows] = await connection.query(statement);
      return Array.isArray(rows) ? rows : [];
    } finally {
      connection.destroy();
    }
  }

  get #data(): string {
    return path.join(this.#directory, "data");
  }

  get #socket(): string {
    return path.join(this.#directory, "mysql.sock");
  }
}

export async function startMysql(test: Teardown & { passing?(): boolean }): Promise<MysqlServer> {
  const directory = mkdtempSync(path.join(tmpdir(), "gatehouse-mysql-"));
  const server = new MysqlServer(directory, await freePort());
  test.teardown(() => {
    if (test.passing?.() === false && existsSync(server.log)) {
      process.stderr.write(readFileSync(server.log));
    }
    rmSync(directory, { recursive: true, force: true });
  });
  test.teardown(() => server.stop());
  await server.initialize();
  await server.start();
  return server;
}

async function install(directory: string): Promise<void> {
  // Two concurrent installations would conflict in the system's temporary directory.
  const flags = ["--no-defaults", `--datadir=${directory}`, "--innodb-flush-method=nosync"];
  const [program, ...more] =
    mysqld === undefined
      ? [
          findProgram("mariadb-install-db"),
          `--tmpdir=${directory}`,
          "--skip-test-db",
          "--auth-root-authentication-method=normal",
        ]
      : [mysqld, "--initialize-insecure", ...asRoot];
  const child = spawn(program, [...flags, ...more], { stdio: ["ignore", "pipe", "pipe"] });
  const [output, errors, [code]] = await Promise.all([
    text(child.stdout),
    text(child.stderr),
    once(child, "exit"),
  ]);
  if (code !== 0) throw new Error(`${program}: ${output}${errors}`);
}

function findServer(): string {
  return mysqld ?? findProgram("mariadbd");
}

function findProgram(name: string): string {
  const directories = [...(process.env.PATH ?? "").split(":"), "/usr/sbin", "/usr/bin"];
  const found = directories.map((at) => path.join(at, name)).find(existsSync);
  if (found !== undefined) return found;
  throw new Error(`${name} not found: install the package mariadb-server`);
}
