/**
 * Measures how long a Select by key takes while another client exports 300,000 PostgreSQL rows, again and again,
 * and without it: milliseconds at 200 requests per second. Needs `curl`.
 *
 * `node bench/beside-export.ts [--rows 300000] [--rounds 5] [--seconds 3] [--json]`
 */
import { spawn } from "node:child_process";
import { once } from "node:events";
import { parseArgs } from "node:util";
import { target } from "../test/engine/kit.ts";
import { startGateway } from "./rig/engine.ts";
import { effortFlags } from "./rig/flags.ts";
import { describeMachine } from "./rig/machine.ts";
import { type Latency, openLoop } from "./rig/open-loop.ts";
import { openDirectory, openPostgres } from "./rig/opened.ts";
import { markdownTable } from "./rig/table.ts";

const { values: flags } = parseArgs({
  options: { ...effortFlags, rows: { type: "string", default: "300000" } },
});
const rate = 200;
const seconds = Number(flags.seconds);

await using opened = new AsyncDisposableStack();
const directory = openDirectory(opened);
const server = await openPostgres(opened);
await server.sql(`create schema main;
  create table main.orders (id bigint primary key, customer int not null, total numeric(10,2), note text);
  insert into main.orders select i, i * 7919::bigint % 50000, i * 37::bigint % 100000 / 100.0,
    'order ' || i || ', packed' from generate_series(1, ${flags.rows}) as i`);
await server.sql("vacuum analyze main.orders");
const gateway = await startGateway(server.socketUrl("postgres"), directory);
opened.defer(() => gateway.program.end());

const all = { database: "main", from: "orders", columns: ["*"] };
const byKey = JSON.stringify({
  Select: { ...all, where: { column: "id", cmp: "=", value: 7 } },
});

/** Sends small queries on schedule. */
function measure(): Promise<Latency> {
  const { port } = target(gateway.url);
  return openLoop({ port: Number(port), rate, seconds, tokens: [gateway.token], body: byKey });
}

/** Exports until the work is done. Returns the number of exports that were complete. */
async function besideExports(accept: string, work: () => Promise<void>): Promise<number> {
  const state = { isDone: false };
  let count = 0;
  async function exportAll(): Promise<void> {
    while (!state.isDone) {
      const headers = [
        `authorization: Bearer ${gateway.token}`,
        "content-type: application/json",
        `accept: ${accept}`,
      ].flatMap((header) => ["--header", header]);
      const body = ["--data", JSON.stringify({ Select: all })];
      const options = ["--silent", "--fail", "--output", "/dev/null", ...headers, ...body];
      const child = spawn("curl", [...options, `${gateway.url}/query`], { stdio: "inherit" });
      const [code] = await once(child, "exit");
      if (code !== 0) throw new Error(`curl ended with ${code}`);
      count += 1;
    }
  }
  const exporting = exportAll();
  await work();
  state.isDone = true;
  await exporting;
  return count;
}

const forms = ["", "text/csv", "application/x-ndjson", "application/json"];
const found = forms.map((form) => ({ form, samples: [] as Latency[], exports: 0 }));
for (let round = 0; round <= Number(flags.rounds); round += 1) {
  for (const one of found) {
    const work = async () => {
      const sample = await measure();
      // The first round warms up.
      if (round > 0) one.samples.push(sample);
    };
    if (one.form === "") await work();
    else one.exports += await besideExports(one.form, work);
  }
}

const rows = found.map(({ form, samples, exports }) => {
  const least = (of: "p50" | "p99") => Math.min(...samples.map((sample) => sample[of]));
  const failed = samples.reduce((sum, sample) => sum + sample.failed, 0);
  return { form: form || "no export", p50: least("p50"), p99: least("p99"), exports, failed };
});
if (flags.json) console.log(JSON.stringify({ machine: describeMachine(), rows }, undefined, 2));
else {
  const alone = rows[0]?.p99 ?? Number.NaN;
  const head = ["export", "p50, ms", "p99, ms", "p99 of that without", "exports", "failed"];
  const lines = rows.map(({ form, p50, p99, exports, failed }) => [
    form,
    p50.toFixed(1),
    p99.toFixed(1),
    (p99 / alone).toFixed(2),
    String(exports),
    String(failed),
  ]);
  console.log(`${describeMachine().join("; ")}; the least of the rounds\n`);
  console.log(markdownTable(head, lines));
}
