/**
 * Compares the embedded engine over PostgreSQL with PostGraphile 5 and, if Go is available, pREST: a page of a
 * list, a page with nested rows, and an aggregate. Prints processor time per request, of the gateway and of
 * PostgreSQL. Each system verifies tokens and checks rights to tables, except a server by hand, which shows
 * what `node:http` and `pg` cost.
 *
 * `node bench/relations.ts [--rounds 5] [--seconds 3] [--json]`
 */
import { deepStrictEqual } from "node:assert";
import { writeFileSync } from "node:fs";
import path from "node:path";
import { parseArgs } from "node:util";
import { installPeers } from "./peers/install.ts";
import { tokenFile } from "./peers/scenarios.ts";
import { LOAD_CORE, leadInSeconds } from "./peers/system.ts";
import { World } from "./peers/world.ts";
import { BY_HAND, type Peer, startPeers } from "./relations/peers.ts";
import { DATABASE, type Page, pages, tables } from "./relations/shop.ts";
import { effortFlags } from "./rig/flags.ts";
import { load, type Sample } from "./rig/load.ts";
import { describeMachine } from "./rig/machine.ts";
import { openDirectory, openPostgres } from "./rig/opened.ts";
import { treeSeconds } from "./rig/program.ts";
import { rangeText, summarize } from "./rig/statistics.ts";
import { markdownTable } from "./rig/table.ts";

const { values: flags } = parseArgs({ options: effortFlags });
const effort = { rounds: Number(flags.rounds), seconds: Number(flags.seconds) };
const connections = 32;
/** Not granted to anyone. */
const salaries = {
  gatehouse: { from: "salaries", columns: ["*"] },
  postgraphile: "{ allSalaries { nodes { rowId } } }",
  prest: "salaries",
};

await using opened = new AsyncDisposableStack();
installPeers();
const directory = openDirectory(opened);
const server = await openPostgres(opened);
await server.sql(`create database ${DATABASE}`);
await server.sql(tables, DATABASE);
await server.sql("vacuum analyze", DATABASE);
const world = await World.create(directory);
const peers = await startPeers(world, server.url(DATABASE), opened);

async function ask(peer: Peer, page: Parameters<Peer["request"]>[0], token: string) {
  const { path, body } = peer.request(page);
  const response = await fetch(`http://127.0.0.1:${peer.port}${path}`, {
    method: body === undefined ? "GET" : "POST",
    headers: { "content-type": "application/json", authorization: `Bearer ${token}` },
    ...(body !== undefined && { body }),
  });
  return { status: response.status, text: await response.text() };
}

/** @throws Error unless it refuses wrong tokens and a table without a grant */
async function prove(peer: Peer, page: Page): Promise<void> {
  const good = await world.token("user0", peer.algorithm);
  const expired = await world.token("user0", peer.algorithm, -60);
  for (const [what, asked, token] of [
    ["no token", page, ""],
    ["a changed signature", page, `${good.slice(0, -8)}AAAAAAAA`],
    ["an expired token", page, expired],
    ["a table without a grant", salaries, good],
  ] as const) {
    const { status, text } = await ask(peer, asked, token);
    if (status < 400) throw new Error(`${peer.name}, ${what}: ${status} ${text}`);
  }
}

async function requireRows(peer: Peer, page: Page): Promise<void> {
  const { text } = await ask(peer, page, await world.token("user0", peer.algorithm));
  const expected = await server.sql(
    `select row_to_json(one) as row from (${page.sql}) as one`,
    DATABASE,
  );
  deepStrictEqual(
    peer.rows(text),
    expected.map(({ row }) => row),
    `${peer.name}, ${page.name}: ${text}`,
  );
}

/** A sample with the microseconds of PostgreSQL per request. */
type Taken = Sample & { readonly database: number };

async function sampleOf(peer: Peer, page: Page, seconds: number): Promise<Taken> {
  const { path: target, body } = peer.request(page);
  const bodyFile = path.join(directory, "body");
  if (body !== undefined) writeFileSync(bodyFile, body);
  const before = treeSeconds(server.mainProcess());
  const sample = await load(peer.program, {
    port: peer.port,
    path: target,
    connections,
    seconds,
    core: LOAD_CORE,
    tokenFile: await tokenFile(world, peer.algorithm, "repeated", 0),
    ...(body !== undefined && { bodyFile }),
  });
  if (sample.refused + sample.failed > 0) throw new Error(`${peer.name} refused requests`);
  const used = treeSeconds(server.mainProcess()) - before;
  return { ...sample, database: (used * 1e6) / sample.requests };
}

async function measure(page: Page) {
  const taken = peers.map((peer) => ({ peer, samples: [] as Taken[] }));
  for (const { peer } of taken) await requireRows(peer, page);
  for (let round = 1; round <= effort.rounds; round++) {
    for (const { peer, samples } of taken) {
      await sampleOf(peer, page, leadInSeconds(round));
      samples.push(await sampleOf(peer, page, effort.seconds));
    }
    console.error(`${page.name}: round ${round} of ${effort.rounds}`);
  }
  return taken.map(({ peer: { name }, samples }) => {
    const of = (part: "cpu" | "database" | "rate") => summarize(samples.map((one) => one[part]));
    return { name, cpu: of("cpu"), database: of("database"), rate: of("rate") };
  });
}

function table(costs: Awaited<ReturnType<typeof measure>>): string {
  const own = costs[0]?.cpu.median ?? Number.NaN;
  const head = [
    "",
    "µs of CPU a request",
    "range",
    "Gatehouse takes",
    "PostgreSQL, µs of CPU",
    "requests a second",
  ];
  const rows = costs.map(({ name, cpu, database, rate }) => [
    name,
    cpu.median.toFixed(0),
    rangeText(cpu),
    (own / cpu.median).toFixed(2),
    database.median.toFixed(0),
    rate.median.toFixed(0),
  ]);
  return markdownTable(head, rows);
}

const [firstPage] = pages;
if (firstPage === undefined) throw new Error("there is no page");
for (const peer of peers) if (peer.name !== BY_HAND) await prove(peer, firstPage);
const outcomes: Record<string, unknown> = {};
if (!flags.json) console.log(`${describeMachine().join("; ")}\n`);
for (const page of pages) {
  const costs = await measure(page);
  outcomes[page.name] = costs;
  if (!flags.json) console.log(`## ${page.name}\n\n${table(costs)}\n`);
}
if (flags.json) {
  console.log(JSON.stringify({ machine: describeMachine(), effort, outcomes }, undefined, 2));
}
