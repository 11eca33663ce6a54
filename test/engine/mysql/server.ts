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
  "--innodb-log-file-size=8M",
  "--innodb-flush-log-at-trx-commit=2",
  "--innodb-flush-method=nosync",
  "--key-buffer-size=1M",
  "--skip-log-bin",
  "--skip-name-resolve",
];

/** Ends the server when standard input closes, however this process ends. */
const guard = `"$0" "$@" & server=$!; echo $server; cat > /dev/null; kill -KILL $server; wait $server`;

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
    const { size } = statSync(findProgram("mariadbd"));
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
      ...(process.getuid?.() === 0 ? ["--user=root"] : []),
      ...settings,
    ];
    const child = spawn("sh", ["-c", guard, findProgram("mariadbd"), ...flags], {
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
  const places = [`--datadir=${directory}`, `--tmpdir=${directory}`];
  const flags = ["--no-defaults", ...places, "--skip-test-db"];
  const child = spawn(
    findProgram("mariadb-install-db"),
    [...flags, "--auth-root-authentication-method=normal", "--innodb-flush-method=nosync"],
    { stdio: ["ignore", "pipe", "pipe"] },
  );
  const [output, errors, [code]] = await Promise.all([
    text(child.stdout),
    text(child.stderr),
    once(child, "exit"),
  ]);
  if (code !== 0) throw new Error(`mariadb-install-db: ${output}${errors}`);
}

function findProgram(name: string): string {
  const directories = [...(process.env.PATH ?? "").split(":"), "/usr/sbin", "/usr/bin"];
  const found = directories.map((at) => path.join(at, name)).find(existsSync);
  if (found !== undefined) return found;
  throw new Error(`${name} not found: install the package mariadb-server`);
}
