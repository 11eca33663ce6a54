import { globSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import path from "node:path";
import { findProgram } from "../../deploy/programs.ts";
import { giveToOwner } from "../../engine/postgres/binaries.ts";
import { SqlServer } from "../../engine/postgres/server.ts";
import { eventually } from "../../kit/eventually.ts";
import { freePort } from "../../kit/free-port.ts";
import { childrenOf, isAlive } from "../../kit/process-info.ts";
import type { StoreServer, Teardown } from "../kit.ts";
import { SystemProgram } from "./program.ts";
import { Wire } from "./wire.ts";

const NODES = 3;
/** A lost leader is replaced after this time. */
const TTL_SECONDS = 10;

interface Node {
  readonly name: string;
  readonly data: string;
  readonly port: number;
  readonly restPort: number;
  /** By which standbys copy from it. */
  readonly replication: Wire;
  readonly patroni: SystemProgram;
}

/** The programs that this machine lacks. */
export function missingForPatroni(): string[] {
  const missing = ["patroni", "etcd", "haproxy"].filter((name) => findProgram(name) === undefined);
  return binaries() === undefined ? [...missing, "postgresql"] : missing;
}

/** Debian's PostgreSQL, because the npm package lacks `pg_basebackup`. */
function binaries(): string | undefined {
  const [found] = globSync("/usr/lib/postgresql/*/bin/pg_basebackup");
  return found === undefined ? undefined : path.dirname(found);
}

function settings(
  node: Omit<Node, "patroni">,
  { directory, etcd, isSynchronous }: { directory: string; etcd: number; isSynchronous: boolean },
): string {
  const { name, data, port, restPort, replication } = node;
  return JSON.stringify({
    scope: "gatehouse",
    name,
    restapi: { listen: `127.0.0.1:${restPort}`, connect_address: `127.0.0.1:${restPort}` },
    etcd3: { host: `127.0.0.1:${etcd}` },
    bootstrap: {
      dcs: {
        ttl: TTL_SECONDS,
        loop_wait: 1,
        retry_timeout: 4,
        synchronous_mode: isSynchronous,
        postgresql: { use_pg_rewind: true, parameters: { wal_log_hints: "on" } },
      },
      initdb: [{ encoding: "UTF8" }, "no-sync"],
    },
    postgresql: {
      listen: `127.0.0.1:${port}`,
      connect_address: `127.0.0.1:${replication.port}`,
      data_dir: data,
      bin_dir: binaries(),
      pgpass: `${data}.pgpass`,
      remove_data_directory_on_diverged_timelines: true,
      remove_data_directory_on_rewind_failure: true,
      authentication: {
        superuser: { username: "gatehouse", password: "gatehouse" },
        replication: { username: "replicator", password: "replicator" },
      },
      parameters: { fsync: "off", unix_socket_directories: directory, shared_buffers: "16MB" },
      pg_hba: ["local all all trust", "host all all all trust", "host replication all all trust"],
    },
  });
}

/** Three PostgreSQL servers under Patroni with etcd. HAProxy leads to the leader. */
export class PatroniCluster extends SqlServer implements StoreServer {
  readonly #nodes: readonly Node[];
  readonly port: number;

  private constructor(nodes: readonly Node[], port: number) {
    super();
    this.#nodes = nodes;
    this.port = port;
  }

  /** @param isSynchronous true if a commit waits for a standby */
  static async start(t: Teardown, isSynchronous: boolean): Promise<PatroniCluster> {
    const directory = mkdtempSync(path.join(tmpdir(), "gatehouse-patroni-"));
    giveToOwner(directory);
    t.teardown(() => rmSync(directory, { recursive: true, force: true }));
    const [etcd, peers] = [await freePort(), await freePort()];
    start(t, "etcd", [
      "--data-dir",
      path.join(directory, "etcd"),
      "--unsafe-no-fsync",
      "--listen-client-urls",
      `http://127.0.0.1:${etcd}`,
      "--advertise-client-urls",
      `http://127.0.0.1:${etcd}`,
      "--listen-peer-urls",
      `http://127.0.0.1:${peers}`,
      "--initial-advertise-peer-urls",
      `http://127.0.0.1:${peers}`,
      "--initial-cluster",
      `default=http://127.0.0.1:${peers}`,
    ]);
    const nodes: Node[] = [];
    for (let at = 0; at < NODES; at++) {
      const [port, restPort] = [await freePort(), await freePort()];
      const replication = await Wire.to(t, port);
      const name = `node${at}`;
      const node = { name, data: path.join(directory, name), port, restPort, replication };
      const file = path.join(directory, `${name}.yml`);
      mkdirSync(node.data, { mode: 0o700 });
      giveToOwner(node.data);
      writeFileSync(file, settings(node, { directory, etcd, isSynchronous }));
      nodes.push({ ...node, patroni: start(t, "patroni", [file]) });
      t.teardown(() => killServer(node.data));
    }
    const cluster = new PatroniCluster(nodes, await startProxy(t, directory, nodes));
    await cluster.untilWhole();
    return cluster;
  }

  override url(database = "postgres"): string {
    return `postgres://gatehouse:gatehouse@127.0.0.1:${this.port}/${database}`;
  }

  async #leader(): Promise<Node | undefined> {
    for (const node of this.#nodes) if (await answers(node, "primary")) return node;
    return undefined;
  }

  /** Waits until a leader is reachable and two standbys follow it. */
  async untilWhole(): Promise<void> {
    await eventually("a leader and standbys", async () => {
      const roles = await Promise.all(this.#nodes.map((node) => answers(node, "replica?lag=0")));
      const isFollowed = roles.filter(Boolean).length === NODES - 1;
      if (!isFollowed || (await this.#leader()) === undefined) return false;
      return this.sql("select 1").then(
        () => true,
        () => false,
      );
    });
  }

  async cutReplication(): Promise<void> {
    (await this.#leader())?.replication.cut();
  }

  /** Kills the leader with its Patroni. Resolves when another node leads. */
  async killLeader(): Promise<void> {
    const leader = await this.#leader();
    if (leader === undefined) throw new Error("there is no leader");
    await leader.patroni.stop("SIGKILL");
    await killServer(leader.data);
    await eventually("another leads", async () => (await this.#leader()) !== undefined);
  }

  async switchOver(): Promise<void> {
    const leader = await this.#leader();
    if (leader === undefined) throw new Error("there is no leader");
    const body = JSON.stringify({ leader: leader.name });
    await fetch(`http://127.0.0.1:${leader.restPort}/switchover`, { method: "POST", body });
  }

  /** Starts killed nodes again. Resolves when all follow the leader. */
  async repair(): Promise<void> {
    for (const { patroni, replication } of this.#nodes) {
      replication.restore();
      if (!patroni.isRunning) patroni.start();
    }
    await this.untilWhole();
  }
}

function start(t: Teardown, name: string, flags: readonly string[]): SystemProgram {
  const program = SystemProgram.find(t, name, flags);
  if (program === undefined) throw new Error(`there is no ${name}`);
  program.start();
  return program;
}

async function answers({ restPort }: Node, role: string): Promise<boolean> {
  const signal = AbortSignal.timeout(1000);
  const answer = fetch(`http://127.0.0.1:${restPort}/${role}`, { signal });
  return answer.then(
    ({ status }) => status === 200,
    () => false,
  );
}

/** Kills all processes of the server in a directory. */
async function killServer(data: string): Promise<void> {
  let main: number;
  try {
    main = Number(readFileSync(path.join(data, "postmaster.pid"), "utf8").split("\n")[0]);
    if (!isAlive(main)) return;
  } catch {
    return;
  }
  const all = [main, ...childrenOf(main)];
  for (const pid of all) if (isAlive(pid)) process.kill(pid, "SIGKILL");
  await eventually("the server is gone", () => !all.some(isAlive));
}

/** HAProxy as in Patroni's documentation. It closes connections to a former leader. */
async function startProxy(t: Teardown, directory: string, nodes: readonly Node[]): Promise<number> {
  const port = await freePort();
  const servers = nodes.map(
    ({ name, port, restPort }) => `  server ${name} 127.0.0.1:${port} check port ${restPort}`,
  );
  const file = path.join(directory, "haproxy.cfg");
  writeFileSync(
    file,
    `defaults
  mode tcp
  timeout connect 1s
  timeout client 1m
  timeout server 1m
listen writer
  bind 127.0.0.1:${port}
  option httpchk OPTIONS /primary
  http-check expect status 200
  default-server inter 300ms fall 2 rise 1 on-marked-down shutdown-sessions
${servers.join("\n")}
`,
  );
  start(t, "haproxy", ["-db", "-f", file]);
  return port;
}
