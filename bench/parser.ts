/**
 * Measures the body parser against decoding the bytes and parsing them as JSON.
 *
 * `node bench/parser.ts [--bytes 10485760] [--seconds 0.5] [--json]`
 *
 * Measures the thread's own time, so that other load matters less. Every shape is parsed before the first
 * measurement, so that the code is not optimized for one shape only.
 */

import { parseArgs } from "node:util";
import { createGrammar } from "../src/core/query/grammar.ts";
import { parseQuery, parseQueryInSlices } from "../src/core/query/parse.ts";
import { longShapes, shortBodies } from "./parser-shapes.ts";

const { values: flags } = parseArgs({
  options: {
    bytes: { type: "string", default: String(10 * 1024 * 1024) },
    seconds: { type: "string", default: "0.5" },
    json: { type: "boolean" },
  },
});
const bytes = Number(flags.bytes);
const grammar = createGrammar({ extraFields: [], operations: {} });
const parse = (body: Buffer): unknown => JSON.parse(body.toString());

/** Average milliseconds of this thread per call. */
function cost(work: () => unknown, callsAtOnce: number): number {
  work();
  const until = performance.now() + 1000 * Number(flags.seconds);
  const start = process.threadCpuUsage();
  let calls = 0;
  while (calls < 3 || performance.now() < until) {
    for (let index = 0; index < callsAtOnce; index++) work();
    calls += callsAtOnce;
  }
  const { user, system } = process.threadCpuUsage(start);
  return (user + system) / 1000 / calls;
}

/** The longest block of the event loop during a sliced scan, in milliseconds. */
async function longestHold(body: Buffer): Promise<number> {
  let longest = 0;
  let last = performance.now();
  let isDone = false;
  const turn = () => {
    longest = Math.max(longest, performance.now() - last);
    last = performance.now();
    if (!isDone) setImmediate(turn);
  };
  const scanning = parseQueryInSlices(body, grammar);
  turn();
  await scanning;
  isDone = true;
  turn();
  return longest;
}

interface LongResult {
  shape: string;
  megabytes: number;
  milliseconds: number;
  megabytesPerSecond: number;
  timesJsonParse: number;
  longestHold: number;
}

async function measureLong(shape: string, make: (bytes: number) => string): Promise<LongResult> {
  const body = Buffer.from(make(bytes));
  const milliseconds = cost(() => parseQuery(body, grammar), 1);
  const parsing = cost(() => parse(body), 1);
  const holds = [await longestHold(body), await longestHold(body), await longestHold(body)];
  return {
    shape,
    megabytes: body.length / 1e6,
    milliseconds,
    megabytesPerSecond: body.length / 1000 / milliseconds,
    timesJsonParse: parsing / milliseconds,
    longestHold: Math.min(...holds),
  };
}

function measureShort(shape: string, text: string) {
  const body = Buffer.from(text);
  const nanoseconds = 1e6 * cost(() => parseQuery(body, grammar), 1000);
  const parsing = 1e6 * cost(() => parse(body), 1000);
  return { shape, bytes: body.length, nanoseconds, timesJsonParse: parsing / nanoseconds };
}

for (const make of Object.values(longShapes)) parseQuery(Buffer.from(make(200_000)), grammar);
for (const text of Object.values(shortBodies))
  cost(() => parseQuery(Buffer.from(text), grammar), 1000);

const short = Object.entries(shortBodies).map(([shape, text]) => measureShort(shape, text));
const long: LongResult[] = [];
for (const [shape, make] of Object.entries(longShapes)) long.push(await measureLong(shape, make));

if (flags.json === true) console.log(JSON.stringify({ node: process.version, short, long }));
else {
  console.log("| short body | bytes | ns a scan | times JSON.parse |\n|---|--:|--:|--:|");
  for (const { shape, bytes, nanoseconds, timesJsonParse } of short) {
    console.log(
      `| ${shape} | ${bytes} | ${nanoseconds.toFixed(0)} | ${timesJsonParse.toFixed(2)} |`,
    );
  }
  console.log("\n| long body | MB | ms | MB/s | times JSON.parse | longest hold, ms |");
  console.log("|---|--:|--:|--:|--:|--:|");
  for (const result of long) {
    const { shape, megabytes, milliseconds, megabytesPerSecond, timesJsonParse } = result;
    const results = [megabytes.toFixed(1), milliseconds.toFixed(1), megabytesPerSecond.toFixed(0)];
    const others = [timesJsonParse.toFixed(2), result.longestHold.toFixed(0)];
    console.log(`| ${[shape, ...results, ...others].join(" | ")} |`);
  }
}
