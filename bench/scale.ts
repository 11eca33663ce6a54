/**
 * What a request costs as users, tokens and connections grow, what memory they take, and how soon
 * the first answer comes.
 *
 * `node bench/scale.ts [--rounds 3] [--seconds 3] [--json] [--plot FILE]`
 */

import { once } from "node:events";
import { writeFile } from "node:fs/promises";
import { connect } from "node:net";
import path from "node:path";
import { parseArgs } from "node:util";
import { type Gatehouse, startGatehouse } from "./peers/gatehouse.ts";
import { bodyFile, scenarios } from "./peers/scenarios.ts";
import { openScene } from "./peers/scene.ts";
import { LOAD_CORE, leadInSeconds } from "./peers/system.ts";
import { writers } from "./peers/world.ts";
import { load } from "./rig/load.ts";
import { describeMachine } from "./rig/machine.ts";
import { barPlot } from "./rig/plot.ts";
import { type Summary, summarize } from "./rig/statistics.ts";
import { markdownTable } from "./rig/table.ts";

const { values: flags } = parseArgs({
  options: {
    rounds: { type: "string", default: "3" },
    seconds: { type: "string", default: "3" },
    json: { type: "boolean", default: false },
    plot: { type: "string" },
  },
});
const rounds = Number(flags.rounds);
const seconds = Number(flags.seconds);

/** One size of everything; the others differ from the first in one thing. */
const usual = { users: 50, tokens: 50, connections: 32, idle: 0 };
const sizes = [
  usual,
  { ...usual, users: 10_000 },
  { ...usual, users: 100_000 },
  { ...usual, tokens: 1 },
  { ...usual, tokens: 10_000 },
  { ...usual, connections: 10 },
  { ...usual, connections: 1000 },
  // With as many to the upstream, and some, they fit the usual limit of 20,000 open files.
  { ...usual, idle: 9000 },
];
type Size = typeof usual;

const [scenario] = scenarios;
if (scenario === undefined) throw new Error("there is no scenario");
await using opened = new AsyncDisposableStack();
const { world, upstream } = await openScene(opened);
const port = upstream.ports.get(scenario.answer) ?? 0;
const body = bodyFile(world, scenario);

const tokenFiles = new Map<number, string>();

/** A file of so many tokens, the same in each round. */
async function tokenFile(count: number): Promise<string> {
  const known = tokenFiles.get(count);
  if (known !== undefined) return known;
  const tokens: string[] = [];
  for (let at = 0; at < count; at++) {
    tokens.push(await world.token(writers[at % writers.length] ?? ""));
  }
  const file = path.join(world.directory, `scale-tokens-${count}`);
  await writeFile(file, tokens.join("\n"));
  tokenFiles.set(count, file);
  return file;
}

/** The gateways that are needed, one for each number of users, with the seconds of their start. */
async function startAll(): Promise<Map<number, { gateway: Gatehouse; startSeconds: number }>> {
  const gateways = new Map<number, { gateway: Gatehouse; startSeconds: number }>();
  for (const users of new Set(sizes.map((size) => size.users))) {
    const start = performance.now();
    const gateway = await startGatehouse(world, port, { users });
    opened.defer(() => gateway.program.stop());
    await fetch(`http://127.0.0.1:${gateway.port}/healthz`);
    gateways.set(users, { gateway, startSeconds: (performance.now() - start) / 1000 });
  }
  return gateways;
}

function nameOf({ users, tokens, connections, idle }: Size): string {
  const text = (count: number) => count.toLocaleString("en");
  const beside = idle === 0 ? "" : ` and ${text(idle)} idle`;
  return `${text(users)} users, ${text(tokens)} tokens, ${text(connections)} connections${beside}`;
}

/** Opens connections on which nothing is asked; they are closed with the stack. */
async function openIdle(front: number, count: number, open: DisposableStack): Promise<void> {
  for (let at = 0; at < count; at++) {
    const socket = connect(front, "127.0.0.1");
    open.defer(() => socket.destroy());
    await once(socket, "connect");
  }
}

const gateways = await startAll();
const memory = new Map(
  [...gateways].map(([users, { gateway }]) => [users, gateway.program.residentMegabytes()]),
);
const costs = new Map<Size, number[]>(sizes.map((size) => [size, []]));
for (let round = 1; round <= rounds; round++) {
  for (const size of sizes) {
    const running = gateways.get(size.users);
    if (running === undefined) continue;
    const { program, port: front } = running.gateway;
    const files = { tokenFile: await tokenFile(size.tokens), bodyFile: body };
    const { connections } = size;
    using idle = new DisposableStack();
    await openIdle(front, size.idle, idle);
    const options = { port: front, connections, seconds, ...files, core: LOAD_CORE };
    await load(program, { ...options, seconds: leadInSeconds(round) });
    const { cpu, failed, refused } = await load(program, options);
    if (failed + refused > 0) throw new Error(`${nameOf(size)}: ${failed + refused} failed`);
    costs.get(size)?.push(cpu);
  }
  console.error(`round ${round} of ${rounds}`);
}

const summaries: [string, Summary][] = [...costs].map(([size, taken]) => [
  ...([nameOf(size), summarize(taken)] as const),
]);
const starts = [...gateways].map(([users, { startSeconds }]) => ({
  users,
  startSeconds,
  megabytes: memory.get(users) ?? Number.NaN,
}));
if (flags.json) {
  const found = { machine: describeMachine(), costs: Object.fromEntries(summaries), starts };
  console.log(JSON.stringify(found, undefined, 2));
} else {
  const base = summaries[0]?.[1].median ?? Number.NaN;
  console.log(`${describeMachine().join("; ")}\n`);
  const head = ["", "µs of CPU a request", "range", "of the first"];
  const rows = summaries.map(([name, { median, least, most }]) => [
    ...[name, median.toFixed(1), `${least.toFixed(1)} to ${most.toFixed(1)}`],
    (median / base).toFixed(2),
  ]);
  console.log(`${markdownTable(head, rows)}\n`);
  const startHead = ["users on file", "seconds to the first answer", "MB after the start"];
  const startRows = starts.map(({ users, startSeconds, megabytes }) => [
    ...[users.toLocaleString("en"), startSeconds.toFixed(2), megabytes.toFixed(0)],
  ]);
  console.log(markdownTable(startHead, startRows));
}
if (flags.plot !== undefined) {
  const bars = summaries.map(([name, value]) => ({ name, value, isOurs: true }));
  const unit = "µs of user and system time a request: median and range of the rounds";
  await writeFile(flags.plot, barPlot("Cost of a request as things grow", unit, bars));
}
