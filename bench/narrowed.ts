/**
 * Measures grants with limits: a Select of two columns under an entry with those columns and a row filter,
 * which the gateway adds, against the same Select under a plain role. Prints processor time of the gateway
 * per request.
 *
 * `node bench/narrowed.ts [--rounds 5] [--seconds 3] [--json]`
 */
import { parseArgs } from "node:util";
import { startGatehouse } from "./peers/gatehouse.ts";
import { measure } from "./peers/measure.ts";
import { columns, rowFilter, withKeys } from "./peers/narrowing.ts";
import { costTable } from "./peers/report.ts";
import { scenarios } from "./peers/scenarios.ts";
import { openScene } from "./peers/scene.ts";
import { effortFlags } from "./rig/flags.ts";
import { printFound } from "./rig/machine.ts";

const { values: flags } = parseArgs({ options: effortFlags });
const effort = { rounds: Number(flags.rounds), seconds: Number(flags.seconds) };

const [scenario] = scenarios;
if (scenario === undefined) throw new Error("there is no scenario");

await using opened = new AsyncDisposableStack();
const { world, upstream } = await openScene(opened);
const port = upstream.ports.get(scenario.answer) ?? 0;
const systems = [];
for (const [name, keys] of [
  ["a role alone", ""],
  ["two columns", columns],
  ["two columns and a row filter", `${columns}\n${rowFilter}`],
] as const) {
  const editAccess = keys === "" ? (text: string) => text : withKeys(keys);
  const system = await startGatehouse(world, port, { name, editAccess });
  opened.defer(() => system.program.stop());
  systems.push(system);
}

const costs = await measure(scenario, systems, world, effort);
printFound(flags.json, { effort, costs }, () => costTable(costs));
