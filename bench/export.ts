/**
 * Measures the export of a million PostgreSQL rows as CSV and as JSON lines: processor time of the gateway,
 * and of `psql --csv` to `/dev/null`, next to PostgreSQL's own.
 *
 * `node bench/export.ts [--rows 1000000] [--rounds 5] [--json]`
 */
import { spawn } from "node:child_process";
import { once } from "node:events";
import { existsSync, globSync } from "node:fs";
import { request } from "node:http";
import path from "node:path";
import { text } from "node:stream/consumers";
import { parseArgs } from "node:util";
import { target } from "../test/engine/kit.ts";
import { startGateway } from "./rig/engine.ts";
import { printFound } from "./rig/machine.ts";
import { openDirectory, openPostgres } from "./rig/opened.ts";
import { treeSeconds } from "./rig/program.ts";
import { rangeText, summarize } from "./rig/statistics.ts";
import { markdownTable } from "./rig/table.ts";

const { values: flags } = parseArgs({
  options: {
    rows: { type: "string", default: "1000000" },
    rounds: { type: "string", default: "5" },
    json: { type: "boolean", default: false },
  },
});
const rowCount = Number(flags.rows);
const select = JSON.stringify({ Select: { database: "main", from: "orders", columns: ["*"] } });

await using opened = new AsyncDisposableStack();
const directory = openDirectory(opened);
const server = await openPostgres(opened);
await server.sql(`create schema main;
  create table main.orders (id bigint primary key, customer int not null, total numeric(10,2),
    placed timestamptz not null, paid boolean, note text);
  insert into main.orders select i, (i * 7919::bigint) % 50000, ((i * 37::bigint) % 100000) / 100.0,
    timestamptz '2026-01-01 00:00:00Z' + i * interval '17 seconds', i % 3 = 0,
    case when i % 5 = 0 then null else 'order ' || i || ', packed' end
    from generate_series(1, ${rowCount}) as i`);
await server.sql("vacuum analyze main.orders");

const gateway = await startGateway(server.socketUrl("postgres"), directory);
opened.defer(() => gateway.program.end());

interface Cost {
  readonly bytes: number;
  readonly seconds: number;
}

const serverSeconds = () => treeSeconds(server.mainProcess());

/** Debian's `psql` is a wrapper script; this finds the program. */
function findPsql(): string | undefined {
  const found = globSync("/usr/lib/postgresql/*/bin/psql").toSorted().at(-1);
  return (
    found ??
    (process.env.PATH ?? "")
      .split(":")
      .map((at) => path.join(at, "psql"))
      .find(existsSync)
  );
}

async function runPsql(program: string, options: readonly string[]): Promise<Cost> {
  const words = ["sh", program, "-X", "-q", server.socketUrl("postgres"), ...options];
  const child = spawn("sh", ["-c", '"$@" > /dev/null; times', ...words], {
    stdio: ["ignore", "pipe", "inherit"],
    env: { ...process.env, PGOPTIONS: "-c timezone=UTC" },
  });
  const [printed, [code]] = await Promise.all([text(child.stdout), once(child, "exit")]);
  if (code !== 0) throw new Error("psql failed");
  const [, ofChildren = ""] = printed.split("\n");
  const seconds = Array.from(ofChildren.matchAll(/(\d+)m([\d.]+)s/g), ([, minutes, rest]) => {
    return Number(minutes) * 60 + Number(rest);
  });
  return { bytes: 0, seconds: seconds.reduce((sum, part) => sum + part, 0) };
}

async function fetchRows({ url, token, program }: typeof gateway, accept: string): Promise<Cost> {
  const before = program.cpuSeconds();
  const headers = { "content-type": "application/json", accept, authorization: `Bearer ${token}` };
  const options = { ...target(url), path: "/query", method: "POST", headers, agent: false };
  const outgoing = request(options).end(select);
  const [response] = await once(outgoing, "response");
  if (response.statusCode !== 200)
    throw new Error(`${response.statusCode}: ${await text(response)}`);
  let bytes = 0;
  for await (const chunk of response) bytes += chunk.length;
  return { bytes, seconds: program.cpuSeconds() - before };
}

const csv = "text/csv";
const ndjson = "application/x-ndjson";
const psql = findPsql();
if (psql === undefined) throw new Error("psql is missing; install the package postgresql-client");
const copy = "copy main.orders to stdout with (format csv, header)";
const rows = "select * from main.orders";
const ways: readonly (readonly [name: string, run: () => Promise<Cost>])[] = [
  ["psql --csv", () => runPsql(psql, ["--csv", "-c", rows])],
  ["psql --csv, by a cursor", () => runPsql(psql, ["--csv", "-v", "FETCH_COUNT=1000", "-c", rows])],
  ["psql, COPY", () => runPsql(psql, ["-c", copy])],
  ["gateway, CSV", () => fetchRows(gateway, csv)],
  ["gateway, lines of JSON", () => fetchRows(gateway, ndjson)],
  ["gateway, one JSON answer", () => fetchRows(gateway, "application/json")],
];
const measured = ways.map(([name, run]) => {
  return {
    name,
    run,
    cpu: [] as number[],
    ofServer: [] as number[],
    wall: [] as number[],
    bytes: 0,
  };
});
for (let round = 0; round <= Number(flags.rounds); round += 1) {
  for (const way of measured) {
    const [startedAt, serverBefore] = [performance.now(), serverSeconds()];
    const { bytes, seconds } = await way.run();
    way.bytes = bytes;
    // The first round warms up.
    if (round === 0) continue;
    way.cpu.push(seconds);
    way.ofServer.push(serverSeconds() - serverBefore);
    way.wall.push((performance.now() - startedAt) / 1000);
  }
}

const found = measured.map(({ name, cpu, ofServer, wall, bytes }) => {
  return { name, cpu: summarize(cpu), server: summarize(ofServer), wall: summarize(wall), bytes };
});
printFound(flags.json, { rowCount, found }, () => {
  const [first] = found;
  const head = ["", "s of CPU", "range", "of psql --csv", "PostgreSQL, s of CPU", "s in all", "MB"];
  const lines = found.map(({ name, cpu, server: ofServer, wall, bytes }) => [
    name,
    cpu.median.toFixed(2),
    rangeText(cpu, 2),
    (cpu.median / (first?.cpu.median ?? Number.NaN)).toFixed(2),
    ofServer.median.toFixed(2),
    wall.median.toFixed(2),
    bytes === 0 ? "" : (bytes / 1e6).toFixed(0),
  ]);
  return markdownTable(head, lines);
});
