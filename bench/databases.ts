/**
 * Measures requests of the ordinary clients of Chroma and OpenSearch through a preset, against a bare forward
 * of the same bytes to the same server. Prints processor time of the gateway per request. The server is an
 * nginx with fixed answers, or for Chroma a real one.
 *
 * `node bench/databases.ts [--rounds 3] [--seconds 3] [--only TEXT] [--chroma URL] [--json]`
 *
 * `--only` runs the scenarios with this text in their names.
 */
import { writeFileSync } from "node:fs";
import path from "node:path";
import { parseArgs } from "node:util";
import {
  answers,
  type DatabaseScenario,
  prepareChroma,
  STUB_ID,
  scenariosOf,
} from "./databases/scenarios.ts";
import { startGatehouse } from "./peers/gatehouse.ts";
import { startNode } from "./peers/node.ts";
import { tokenFile } from "./peers/scenarios.ts";
import { openScene } from "./peers/scene.ts";
import { LOAD_CORE, leadInSeconds, type System } from "./peers/system.ts";
import { startPaths } from "./peers/upstream.ts";
import { writers } from "./peers/world.ts";
import { effortFlags } from "./rig/flags.ts";
import { load, type Sample } from "./rig/load.ts";
import { printFound } from "./rig/machine.ts";
import { type Summary, summarize } from "./rig/statistics.ts";
import { markdownTable } from "./rig/table.ts";

const { values: flags } = parseArgs({
  options: {
    ...effortFlags,
    rounds: { type: "string", default: "3" },
    only: { type: "string", default: "" },
    chroma: { type: "string" },
  },
});
const rounds = Number(flags.rounds);
const seconds = Number(flags.seconds);

interface DatabaseCost {
  readonly scenario: string;
  readonly name: string;
  /** Microseconds of processor time per request. */
  readonly cpu: Summary;
  readonly rate: Summary;
}

await using opened = new AsyncDisposableStack();
const { world } = await openScene(opened);
const { port: stubPort, program: server } = await startPaths(world.directory, answers);
opened.defer(() => server.stop());

/** @throws Error if the response is not that of the server */
async function prove(scenario: DatabaseScenario, { name, port }: System, token: string) {
  const headers = { "content-type": scenario.contentType, authorization: `Bearer ${token}` };
  const url = `http://127.0.0.1:${port}${scenario.path}`;
  const answer = await fetch(url, { method: "POST", headers, body: scenario.body });
  const text = await answer.text();
  if (!answer.ok) throw new Error(`${name}: ${answer.status} ${text.slice(0, 300)}`);
}

async function measure(
  scenario: DatabaseScenario,
  systems: readonly System[],
): Promise<DatabaseCost[]> {
  const tokens = await tokenFile(world, "ES256", "repeated", 0);
  const body = path.join(world.directory, `${scenario.preset}.body`);
  writeFileSync(body, scenario.body);
  const samples = systems.map((): Sample[] => []);
  for (const system of systems) await prove(scenario, system, await world.token(writers[0] ?? ""));
  for (let round = 1; round <= rounds; round++) {
    for (const [at, { port, program, name }] of systems.entries()) {
      const asked = {
        port,
        path: scenario.path,
        headers: { "content-type": scenario.contentType },
        connections: scenario.connections,
        tokenFile: tokens,
        bodyFile: body,
        core: LOAD_CORE,
      };
      await load(program, { ...asked, seconds: leadInSeconds(round) });
      const sample = await load(program, { ...asked, seconds });
      if (sample.refused + sample.failed > 0) throw new Error(`${name}: requests failed`);
      samples[at]?.push(sample);
    }
    console.error(`${scenario.name}: round ${round} of ${rounds}`);
  }
  return systems.map(({ name }, at) => ({
    scenario: scenario.name,
    name,
    cpu: summarize(samples[at]?.map(({ cpu }) => cpu) ?? []),
    rate: summarize(samples[at]?.map(({ rate }) => rate) ?? []),
  }));
}

const chromaId = flags.chroma === undefined ? STUB_ID : await prepareChroma(flags.chroma);
const costs: DatabaseCost[] = [];
for (const scenario of scenariosOf(chromaId).filter(({ name }) => name.includes(flags.only))) {
  const { preset } = scenario;
  const isReal = preset === "chroma" && flags.chroma !== undefined;
  const port = isReal ? Number(new URL(flags.chroma ?? "").port) : stubPort;
  await using running = new AsyncDisposableStack();
  const gatehouse = await startGatehouse(world, port, { preset, name: "Gatehouse" });
  running.defer(() => gatehouse.program.stop());
  const bare = await startNode("bare", world, port);
  running.defer(() => bare.program.stop());
  costs.push(...(await measure(scenario, [gatehouse, bare])));
}

function shown({ median, least, most }: Summary): string {
  return `${median.toFixed(0)} (${least.toFixed(0)}–${most.toFixed(0)})`;
}

printFound(flags.json, { effort: { rounds, seconds }, costs }, () => {
  const rows = costs.map((one) => [one.scenario, one.name, shown(one.cpu), shown(one.rate)]);
  return markdownTable(["request", "system", "µs of CPU", "requests/s"], rows);
});
