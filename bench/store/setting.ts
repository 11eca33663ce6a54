/** A gateway with files, and replicas with a store, with the same users and keys. */
import { once } from "node:events";
import { cpSync, mkdirSync, writeFileSync } from "node:fs";
import { type AddressInfo, connect, createServer as createTcpServer } from "node:net";
import path from "node:path";
import { hashPassword } from "../../src/core/identity/password.ts";
import type { PostgresServer } from "../../test/engine/postgres/server.ts";
import { runCommand, Service } from "../../test/kit/process.ts";
import { openDirectory, openPostgres, openUpstream } from "../rig/opened.ts";
import { cpuSecondsOf } from "../rig/program.ts";

const PASSWORD = "benchmark password";
/** Starts with many users are slow. */
const START_TIMEOUT_MS = 180_000;
const DATABASE = "store";

/** Forwards bytes and counts them. */
class CountingProxy {
  bytes = 0;
  readonly port: number;

  private constructor(port: number) {
    this.port = port;
  }

  static async to(target: number, opened: AsyncDisposableStack): Promise<CountingProxy> {
    const server = createTcpServer().listen(0, "127.0.0.1");
    await once(server, "listening");
    const proxy = new CountingProxy(portOf(server.address()));
    server.on("connection", (client) => {
      const upward = connect(target, "127.0.0.1");
      for (const [from, to] of [[client, upward] as const, [upward, client] as const]) {
        from.on("data", (bytes) => (proxy.bytes += bytes.length)).pipe(to);
        from.on("error", () => to.destroy());
      }
    });
    opened.defer(() => void server.close());
    return proxy;
  }
}

function portOf(address: AddressInfo | string | null): number {
  if (address === null || typeof address === "string") throw new Error("no port");
  return address.port;
}

export interface Running {
  readonly port: number;
  readonly url: string;
  readonly home: string;
  cpuSeconds(): number;
}

export interface Setting {
  readonly server: PostgresServer;
  readonly single: Running;
  readonly replicas: readonly (Running & { readonly proxy: CountingProxy })[];
  /** Seconds for the import. */
  readonly importSeconds: number;
}

function accessFile(users: number, hash: string): string {
  const names = ["admin", ...Array.from({ length: users }, (_, index) => `user${index}`)];
  const parts = names.map((name) => {
    const [database, role] = name === "admin" ? ["*", "Owner"] : ["main", "ReadOnly"];
    return `[[users]]\nusername = "${name}"\npassword_hash = "${hash}"\n
[[acl]]\nusername = "${name}"\ndatabase = "${database}"\nrole = "${role}"\n`;
  });
  return parts.join("\n");
}

async function start(home: string, opened: AsyncDisposableStack): Promise<Running> {
  const service = new Service(home, ["serve", "--port", "0"]);
  opened.defer(async () => void (await service.stop("SIGKILL")));
  const isListening = ({ msg }: Record<string, unknown>) => String(msg).startsWith("listening on");
  const { url } = await service.logged(isListening, START_TIMEOUT_MS);
  const pid = service.child.pid ?? 0;
  const port = Number(new URL(String(url)).port);
  return { port, url: String(url), home, cpuSeconds: () => cpuSecondsOf(pid) };
}

/** Starts everything until the stack is disposed. */
export async function openSetting(
  opened: AsyncDisposableStack,
  { users, count }: { readonly users: number; readonly count: number },
): Promise<Setting> {
  const root = openDirectory(opened);
  const upstream = await openUpstream(opened);
  const makeHome = (name: string, storePort?: number): string => {
    const home = path.join(root, name);
    mkdirSync(home, { mode: 0o700 });
    const store =
      storePort === undefined
        ? ""
        : `[store]\nurl = "postgres://gatehouse@127.0.0.1:${storePort}/${DATABASE}"\n`;
    const config = `[auth]\nargon2_memory_cost = 64\nargon2_time_cost = 1\nargon2_parallelism = 1
[upstream]\nurl = "http://127.0.0.1:${upstream}"\n[audit]\nfile = "audit.log"\n${store}`;
    writeFileSync(path.join(home, "gateway.toml"), config);
    return home;
  };
  const hash = await hashPassword(PASSWORD, { memory: 64, time: 1, parallelism: 1 });
  const single = makeHome("single");
  const file = path.join(single, "access_control.toml");
  writeFileSync(file, accessFile(users, hash), { mode: 0o600 });
  const alone = await start(single, opened);

  const server = await openPostgres(opened);
  await server.sql(`create database ${DATABASE}`);
  const first = makeHome("host", server.port);
  cpSync(path.join(single, "keys"), path.join(first, "keys"), { recursive: true });
  const good = async (...command: string[]) => {
    const { code, stderr } = await runCommand(first, command);
    if (code !== 0) throw new Error(stderr);
  };
  await good("store", "init");
  const began = performance.now();
  await good("store", "import", file);
  const importSeconds = (performance.now() - began) / 1000;
  const replicas = [];
  for (let index = 0; index < count; index++) {
    const proxy = await CountingProxy.to(server.port, opened);
    const home = makeHome(`replica${index}`, proxy.port);
    cpSync(path.join(first, "store.key"), path.join(home, "store.key"));
    replicas.push({ ...(await start(home, opened)), proxy });
  }
  return { server, single: alone, replicas, importSeconds };
}

export async function tokenOf({ url }: Running, username: string): Promise<string> {
  const body = JSON.stringify({ username, password: PASSWORD });
  const headers = { "content-type": "application/json" };
  const answer = await fetch(`${url}/login`, { method: "POST", headers, body });
  const { token }: { token?: string } = JSON.parse(await answer.text());
  if (token === undefined) throw new Error(`login of ${username}: ${answer.status}`);
  return token;
}
