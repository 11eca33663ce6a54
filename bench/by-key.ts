/**
 * Measures a Select and an Insert by primary key on PostgreSQL, and a Batch of ten Inserts: processor time
 * of a gateway without authentication and of PostgreSQL, and latency. Compares with a small HTTP server that uses only `pg`,
 * one statement at a time and without checks.
 *
 * `node bench/by-key.ts [--rounds 5] [--seconds 3] [--json]`
 */
import { once } from "node:events";
import { Agent, request } from "node:http";
import path from "node:path";
import { text } from "node:stream/consumers";
import { fileURLToPath } from "node:url";
import { parseArgs } from "node:util";
import { target } from "../test/engine/kit.ts";
import { startOpenGateway } from "./rig/engine.ts";
import { effortFlags } from "./rig/flags.ts";
import { printFound } from "./rig/machine.ts";
import { openDirectory, openPostgres } from "./rig/opened.ts";
import { Program, treeSeconds } from "./rig/program.ts";
import { quantile, rangeText, summarize } from "./rig/statistics.ts";
import { markdownTable } from "./rig/table.ts";

const { values: flags } = parseArgs({ options: effortFlags });
const rowCount = 100_000;

await using opened = new AsyncDisposableStack();
const directory = openDirectory(opened);
const server = await openPostgres(opened);
await server.sql(`create schema main;
  create table main.users (id int primary key, name text not null, email text);
  insert into main.users select i, 'User ' || i, 'user' || i || '@example.com'
    from generate_series(1, ${rowCount}) as i`);
await server.sql("vacuum analyze main.users");

const url = server.socketUrl("postgres");
const engine = await startOpenGateway(url, directory);
opened.defer(() => engine.program.end());
const script = fileURLToPath(new URL("engine/by-hand.js", import.meta.url));
const socket = path.join(directory, "by-hand.sock");
const byHand = new Program(process.execPath, [script, url, socket]);
opened.defer(() => byHand.stop());
await byHand.printed(/(ready)/);

const serverSeconds = () => treeSeconds(server.mainProcess());

let lastId = rowCount;
function insert() {
  lastId += 1;
  const values = [{ id: lastId, name: `User ${lastId}`, email: `user${lastId}@example.com` }];
  return { database: "main", table: "users", values };
}
const queries = {
  Select: () => ({
    database: "main",
    from: "users",
    columns: ["id", "name", "email"],
    where: { column: "id", cmp: "=", value: 1 + Math.floor(Math.random() * rowCount) },
  }),
  Insert: insert,
  Batch: () => Array.from({ length: 10 }, () => ({ Insert: insert() })),
} as const;

interface Way {
  readonly name: string;
  readonly address: string;
  readonly program: Program;
}

async function ask({ address }: Way, agent: Agent, name: keyof typeof queries): Promise<void> {
  const headers = { "content-type": "application/json" };
  const options = { ...target(address), path: "/query", method: "POST", headers, agent };
  const outgoing = request(options).end(JSON.stringify({ [name]: queries[name]() }));
  const [response] = await once(outgoing, "response");
  const answer = await text(response);
  if (response.statusCode !== 200 || !answer.startsWith('{"status":"success"')) {
    throw new Error(`${response.statusCode}: ${answer}`);
  }
}

/** Microseconds of processor time per query, and median latency in milliseconds. */
interface Sample {
  readonly cpu: number;
  readonly ofServer: number;
  readonly p50: number;
}

async function load(
  way: Way,
  name: keyof typeof queries,
  connections: number,
  seconds: number,
): Promise<Sample> {
  const agent = new Agent({ keepAlive: true, maxSockets: connections });
  const times: number[] = [];
  const [before, serverBefore] = [way.program.cpuSeconds(), serverSeconds()];
  const end = performance.now() + seconds * 1000;
  const one = async () => {
    while (performance.now() < end) {
      const startedAt = performance.now();
      await ask(way, agent, name);
      times.push(performance.now() - startedAt);
    }
  };
  await Promise.all(Array.from({ length: connections }, one));
  const cpu = ((way.program.cpuSeconds() - before) * 1e6) / times.length;
  const ofServer = ((serverSeconds() - serverBefore) * 1e6) / times.length;
  agent.destroy();
  return { cpu, ofServer, p50: quantile(times, 0.5) };
}

const ways: readonly Way[] = [
  { name: "pg by hand", address: `unix:${socket}`, program: byHand },
  { name: "gateway", address: engine.address, program: engine.program },
];
const cases = (["Select", "Insert", "Batch"] as const).flatMap((name) =>
  [16, 1].flatMap((connections) => ways.map((way) => ({ name, connections, way }))),
);
const samples = cases.map(() => [] as Sample[]);
for (let round = 0; round <= Number(flags.rounds); round += 1) {
  for (const [at, { name, connections, way }] of cases.entries()) {
    const sample = await load(way, name, connections, Number(flags.seconds));
    // The first round warms up.
    if (round > 0) samples[at]?.push(sample);
  }
}

const found = cases.map(({ name, connections, way }, at) => {
  const of = (part: keyof Sample) => summarize((samples[at] ?? []).map((sample) => sample[part]));
  return {
    name,
    connections,
    way: way.name,
    cpu: of("cpu"),
    server: of("ofServer"),
    p50: of("p50"),
  };
});
printFound(flags.json, { found }, () => {
  const head = ["", "connections", "", "µs of CPU", "range", "of pg by hand"];
  const lines = found.map(({ name, connections, way, cpu, server: ofServer, p50 }, at) => {
    const first = found[at - (at % ways.length)];
    const times = (p50.median / (first?.p50.median ?? Number.NaN)).toFixed(2);
    return [
      name,
      String(connections),
      way,
      cpu.median.toFixed(0),
      rangeText(cpu),
      (cpu.median / (first?.cpu.median ?? Number.NaN)).toFixed(2),
      ofServer.median.toFixed(0),
      p50.median.toFixed(2),
      times,
    ];
  });
  const columns = [...head, "PostgreSQL, µs of CPU", "p50 in ms", "of pg by hand"];
  return markdownTable(columns, lines);
});
