/**
 * Measures idle kept connections: memory for each, and latency of other requests.
 *
 * `node bench/connections.ts [--connections 10000] [--json]`
 */

import { once } from "node:events";
import { writeFile } from "node:fs/promises";
import { connect, type Socket } from "node:net";
import path from "node:path";
import { parseArgs } from "node:util";
import { Service } from "../test/kit/process.ts";
import { residentBytes } from "../test/kit/process-info.ts";
import { openDirectory } from "./rig/opened.ts";

const { values: flags } = parseArgs({
  options: { connections: { type: "string", default: "10000" }, json: { type: "boolean" } },
});
const wanted = Number(flags.connections);
/** Connections opened at the same time. */
const GROUP = 200;
const FRESH_REQUESTS = 200;

/** Opens a connection, sends one request, and leaves it idle. */
async function idle(port: number): Promise<Socket> {
  const socket = connect(port, "127.0.0.1");
  socket.on("error", () => {});
  socket.write("GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n");
  // A refused connection may fail.
  await Promise.race([once(socket, "data"), once(socket, "close")]).catch(() => {});
  return socket;
}

/** Milliseconds for a request on a new connection. */
async function freshRequest(port: number): Promise<number> {
  const start = performance.now();
  (await idle(port)).destroy();
  return performance.now() - start;
}

async function freshRequests(port: number): Promise<{ median: number; p99: number }> {
  const times: number[] = [];
  for (let count = 0; count < FRESH_REQUESTS; count++) times.push(await freshRequest(port));
  times.sort((a, b) => a - b);
  const at = (share: number) => times[Math.floor(times.length * share)] ?? Number.NaN;
  return { median: at(0.5), p99: at(0.99) };
}

function round(value: number): number {
  return Math.round(value * 100) / 100;
}

await using opened = new AsyncDisposableStack();
const home = openDirectory(opened);
await writeFile(path.join(home, "gateway.toml"), '[upstream]\nurl = "http://127.0.0.1:9"\n');
const environment = { GATEHOUSE_ADMIN_PASSWORD: "benchmark password" };
const service = new Service(home, ["serve", "--port", "0"], environment);
opened.defer(async () => void (await service.stop("SIGKILL")));
const { url } = await service.logged(({ msg }) => String(msg).startsWith("listening on"));
const port = Number(new URL(String(url)).port);
const pid = service.child.pid ?? 0;
const alone = await freshRequests(port);
const before = residentBytes(pid);
const sockets: Socket[] = [];
const start = performance.now();
while (sockets.length < wanted) {
  const group = Math.min(GROUP, wanted - sockets.length);
  sockets.push(...(await Promise.all(Array.from({ length: group }, () => idle(port)))));
}
const seconds = (performance.now() - start) / 1000;
const open = sockets.filter(({ destroyed }) => !destroyed).length;
const beside = await freshRequests(port);
const grown = residentBytes(pid) - before;
for (const socket of sockets) socket.destroy();
const results = {
  "connections, idle": open,
  "connections turned away": wanted - open,
  "connections taken in a second": Math.round(wanted / seconds),
  "memory before, MB": round(before / 1024 / 1024),
  "memory for each, KB": round(grown / open / 1024),
  "fresh request alone, ms": round(alone.median),
  "fresh request alone, 99%, ms": round(alone.p99),
  "fresh request beside them, ms": round(beside.median),
  "fresh request beside them, 99%, ms": round(beside.p99),
};
if (flags.json) process.stdout.write(`${JSON.stringify(results)}\n`);
else for (const [what, value] of Object.entries(results)) console.log(what.padEnd(36), value);
