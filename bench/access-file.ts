/**
 * Measures the access file at scale: start-up, memory, and the cost of reloads and writes under load.
 *
 * `node bench/access-file.ts [--users 5000] [--edits 5] [--workers 1] [--narrowed] [--quiet] [--json]`
 *
 * Makes as many edits by hand as by the API. With `--narrowed`, half of the entries have tables, columns,
 * row filters and limits. With `--quiet`, there is no load.
 */

import { randomBytes } from "node:crypto";
import { appendFile, writeFile } from "node:fs/promises";
import path from "node:path";
import { setTimeout as pause } from "node:timers/promises";
import { parseArgs } from "node:util";
import { hashPassword } from "../src/core/identity/password.ts";
import { freePort } from "../test/kit/free-port.ts";
import { Service } from "../test/kit/process.ts";
import { residentBytes } from "../test/kit/process-info.ts";
import { openDirectory, openUpstream } from "./rig/opened.ts";
import { summarize } from "./rig/statistics.ts";

const { values: flags } = parseArgs({
  options: {
    users: { type: "string", default: "5000" },
    edits: { type: "string", default: "5" },
    workers: { type: "string", default: "1" },
    narrowed: { type: "boolean" },
    quiet: { type: "boolean" },
    json: { type: "boolean" },
  },
});
const userCount = Number(flags.users);
const PASSWORD = "benchmark password";
const LOAD_CONNECTIONS = flags.quiet ? 0 : 8;
const edits = Number(flags.edits);
const AT_ONCE = 20;
const select = JSON.stringify({ Select: { database: "main", from: "t", columns: ["*"] } });

function accessFile(hash: string): string {
  const user = (name: string, own = hash) =>
    `[[users]]\nusername = "${name}"\npassword_hash = "${own}"\n`;
  // Distinct hashes, since each takes memory. Only one belongs to a user who logs in.
  const other = () =>
    hash.replace(/[^$]+$/, (key) =>
      randomBytes(key.length).toString("base64").slice(0, key.length),
    );
  const grant = (name: string, database: string, role: string) =>
    `[[acl]]\nusername = "${name}"\ndatabase = "${database}"\nrole = "${role}"\n`;
  const limits = (index: number) => `tables = ["team${index % 1000}", "own_${index}_*"]
columns = ["id", "tenant", "status", "subject"]
row_filter = [{ column = "tenant", cmp = "=", value = "@username" }]
max_rows = 200\n`;
  const parts = ["# made by bench/access-file.ts\n", user("admin"), grant("admin", "*", "Owner")];
  for (let index = 0; index < userCount; index++) {
    const name = `user${index}`;
    parts.push(user(name, index === 7 ? hash : other()), grant(name, "main", "ReadOnly"));
    const second = grant(name, flags.narrowed ? "main" : `team${index % 1000}`, "ReadWrite");
    parts.push(flags.narrowed ? second + limits(index) : second);
  }
  return parts.join("\n");
}

function residentMegabytes(pid = 0): number {
  return residentBytes(pid) / 2 ** 20;
}

/** Since the last call, in milliseconds. */
async function longestStall(metricsUrl: string): Promise<number> {
  const text = await (await fetch(metricsUrl)).text();
  return Number(/^nodejs_eventloop_lag_max_seconds (\S+)/m.exec(text)?.[1]) * 1000;
}

class Client {
  readonly #url: string;
  #token = "";

  constructor(url: string) {
    this.#url = url;
  }

  async send(method: string, route: string, body: string): Promise<Response> {
    const headers = { "content-type": "application/json", authorization: `Bearer ${this.#token}` };
    return fetch(`${this.#url}${route}`, { method, headers, body });
  }

  async login(username: string): Promise<void> {
    const answer = await this.send(
      "POST",
      "/login",
      JSON.stringify({ username, password: PASSWORD }),
    );
    const { token }: { token?: string } = JSON.parse(await answer.text());
    this.#token = token ?? "";
  }

  async queryStatus(body: string): Promise<number> {
    const answer = await this.send("POST", "/query", body);
    await answer.arrayBuffer();
    return answer.status;
  }
}

async function timed(work: () => Promise<unknown>): Promise<number> {
  const start = performance.now();
  await work();
  return performance.now() - start;
}

await using opened = new AsyncDisposableStack();
const home = openDirectory(opened);
const upstreamPort = await openUpstream(opened);
const metricsPort = await freePort();
const config = `[auth]\nargon2_memory_cost = 64\nargon2_time_cost = 1\nargon2_parallelism = 1
[upstream]\nurl = "http://127.0.0.1:${upstreamPort}"
[server]\nworkers = ${flags.workers}
[metrics]\nlisten = "127.0.0.1:${metricsPort}"
[audit]\nfile = "audit.log"\n`;
await writeFile(path.join(home, "gateway.toml"), config);
const file = path.join(home, "access_control.toml");
const hash = await hashPassword(PASSWORD, { memory: 64, time: 1, parallelism: 1 });
await writeFile(file, accessFile(hash), { mode: 0o600 });

const startedAt = performance.now();
const gateway = new Service(home, ["serve", "--port", "0"]);
opened.defer(async () => void (await gateway.stop("SIGKILL")));
const { url } = await gateway.logged(({ msg }) => String(msg).startsWith("listening on"), 120_000);
const startMs = performance.now() - startedAt;
const memoryMb = residentMegabytes(gateway.child.pid);
const metricsUrl = `http://127.0.0.1:${metricsPort}/metrics`;
const client = new Client(String(url));
await client.login("user7");
const administrator = new Client(String(url));
await administrator.login("admin");

let isLoading = true;
let served = 0;
const load = Array.from({ length: LOAD_CONNECTIONS }, async () => {
  while (isLoading) {
    await client.queryStatus(select);
    served++;
  }
});
await new Promise((resolve) => setTimeout(resolve, 2000));
await longestStall(metricsUrl);
await new Promise((resolve) => setTimeout(resolve, 2000));
const quietStallMs = await longestStall(metricsUrl);

const reloads: number[] = [];
for (let round = 0; round < edits; round++) {
  const other = select.replace('"main"', `"other${round}"`);
  const grant = `\n[[acl]]\nusername = "user7"\ndatabase = "other${round}"\nrole = "ReadOnly"\n`;
  reloads.push(
    await timed(async () => {
      await appendFile(file, grant);
      while ((await client.queryStatus(other)) !== 200) await pause(5);
    }),
  );
}
await new Promise((resolve) => setTimeout(resolve, 500));
const reloadStallMs = await longestStall(metricsUrl);

const writes: number[] = [];
for (let round = 0; round < edits; round++) {
  const user = { username: `new${round}`, password: PASSWORD, role: "ReadOnly" };
  writes.push(
    await timed(async () => {
      const answer = await administrator.send("POST", "/api/users", JSON.stringify(user));
      if (answer.status !== 201) throw new Error(await answer.text());
    }),
  );
}
const answers = await Promise.all(
  Array.from({ length: AT_ONCE }, async (_, index) => {
    const user = { username: `one${index}`, password: PASSWORD, role: "ReadOnly" };
    const start = performance.now();
    const { status } = await administrator.send("POST", "/api/users", JSON.stringify(user));
    return { status, ms: performance.now() - start };
  }),
);
const added = answers.filter(({ status }) => status === 201).length;
const writeStallMs = await longestStall(metricsUrl);
isLoading = false;
await Promise.all(load);

const results = {
  users: userCount,
  grants: 2 * userCount,
  "start to listening, ms": Math.round(startMs),
  "memory after start, MB": Math.round(memoryMb),
  "memory at the end, MB": Math.round(residentMegabytes(gateway.child.pid)),
  "queries served during the measurement": served,
  "longest stall without reload, ms": Math.round(quietStallMs),
  "edit to in force, median ms": Math.round(summarize(reloads).median),
  "edit to in force, longest ms": Math.round(Math.max(...reloads)),
  "longest stall while reloading, ms": Math.round(reloadStallMs),
  "user added by the API, median ms": Math.round(summarize(writes).median),
  [`of ${AT_ONCE} users added at once, succeeded`]: added,
  "the last of them after, ms": Math.round(Math.max(...answers.map(({ ms }) => ms))),
  "longest stall while writing, ms": Math.round(writeStallMs),
};
if (flags.json) console.log(JSON.stringify(results));
else console.table(results);
