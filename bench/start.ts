/**
 * Measures a start of the gateway: processor time and wall time to the first response, and memory then. A
 * first start fills the compile cache. `node bench/start.ts [--rounds 5]`
 */

import { mkdirSync, writeFileSync } from "node:fs";
import path from "node:path";
import { fileURLToPath } from "node:url";
import { parseArgs } from "node:util";
import { cleanEnvironment } from "../test/kit/process.ts";
import { childrenOf, residentBytes } from "../test/kit/process-info.ts";
import { openDirectory } from "./rig/opened.ts";
import { Program } from "./rig/program.ts";
import { summarize } from "./rig/statistics.ts";
import { markdownTable } from "./rig/table.ts";

const { values: flags } = parseArgs({ options: { rounds: { type: "string", default: "5" } } });
const rounds = Number(flags.rounds);
const program = fileURLToPath(new URL("../bin/gatehouse.js", import.meta.url));
const proxied = '[upstream]\nurl = "http://127.0.0.1:9"\n';

/** Configurations by name. */
const kinds = {
  "MCP off": `${proxied}[mcp]\nenabled = false\n`,
  "MCP on": proxied,
  "MCP on, SQLite": "",
} as const;

interface Start {
  readonly cpu: number;
  readonly seconds: number;
  readonly megabytes: number;
}

/** Memory of the process that runs SQLite, the only child after a start. */
function sqliteMegabytes(pid: number): number | undefined {
  const [child] = childrenOf(pid);
  return child === undefined ? undefined : residentBytes(child) / 2 ** 20;
}

async function start(home: string, engines: number[]): Promise<Start> {
  const environment = {
    ...cleanEnvironment(home, { GATEHOUSE_ADMIN_PASSWORD: "benchmark password" }),
    XDG_CACHE_HOME: path.join(home, "cache"),
    NODE_COMPILE_CACHE: undefined,
  };
  const began = performance.now();
  const running = new Program(process.execPath, [program, "serve"], undefined, environment);
  const url = await running.printed(/"url":"(http:[^"]+)/);
  await (await fetch(`${url}/healthz`)).text();
  const seconds = (performance.now() - began) / 1000;
  const found = { cpu: running.cpuSeconds(), seconds, megabytes: running.residentMegabytes() };
  const engine = sqliteMegabytes(running.child.pid ?? 0);
  if (engine !== undefined) engines.push(engine);
  await running.end();
  return found;
}

await using opened = new AsyncDisposableStack();
const root = openDirectory(opened);
const text = (values: number[], digits: number) => summarize(values).median.toFixed(digits);
const rows: string[][] = [];
for (const [kind, configuration] of Object.entries(kinds)) {
  const home = path.join(root, String(rows.length));
  mkdirSync(path.join(home, "cache"), { recursive: true, mode: 0o700 });
  writeFileSync(path.join(home, "gateway.toml"), `[server]\nport = 0\n${configuration}`);
  const engines: number[] = [];
  const starts: Start[] = [];
  for (let round = 0; round <= rounds; round++) starts.push(await start(home, engines));
  starts.shift();
  const median = (of: keyof Start, digits: number) =>
    text(
      starts.map((one) => one[of]),
      digits,
    );
  const own = median("megabytes", 0);
  const memory = engines.length === 0 ? own : `${own} and ${text(engines, 0)}`;
  rows.push([kind, median("cpu", 2), median("seconds", 2), memory]);
}
console.log(markdownTable(["", "s of CPU", "s to the first answer", "MB"], rows));
