/**
 * Measures groups: a Select by a user of an identity provider, whose token has no groups or two hundred of
 * them, with and without groups in the access file. Prints processor time of the gateway per request, and
 * that of a login token.
 *
 * `node bench/groups.ts [--rounds 5] [--seconds 3] [--json]`
 */
import { writeFileSync } from "node:fs";
import path from "node:path";
import { parseArgs } from "node:util";
import { groupEntries, groups, openExternal } from "./peers/external.ts";
import { startGatehouse } from "./peers/gatehouse.ts";
import { costTable } from "./peers/report.ts";
import { bodyFile, scenarios } from "./peers/scenarios.ts";
import { LOAD_CORE, leadInSeconds } from "./peers/system.ts";
import { startAnswering } from "./peers/upstream.ts";
import { World, writers } from "./peers/world.ts";
import { effortFlags } from "./rig/flags.ts";
import { load } from "./rig/load.ts";
import { printFound } from "./rig/machine.ts";
import { openDirectory } from "./rig/opened.ts";
import { summarize } from "./rig/statistics.ts";

const { values: flags } = parseArgs({ options: effortFlags });
const effort = { rounds: Number(flags.rounds), seconds: Number(flags.seconds) };

const [scenario] = scenarios;
if (scenario === undefined) throw new Error("there is no scenario");

await using opened = new AsyncDisposableStack();
const directory = openDirectory(opened);
const world = await World.create(directory);
const upstream = await startAnswering(directory, ['{"status":"success","data":[]}']);
opened.defer(() => upstream.program.stop());
const external = await openExternal(world);

async function start(name: string, more: string) {
  const editAccess = (text: string) => text + external.entries + more;
  const { config } = external;
  const system = await startGatehouse(world, upstream.ports[0] ?? 0, { name, editAccess, config });
  opened.defer(() => system.program.stop());
  return system;
}
const [without, having] = [await start("without", ""), await start("with", groupEntries())];
const [none, many] = [await external.tokens([]), await external.tokens(groups)];
const logins = await Promise.all(writers.map((name) => world.token(name)));
const cases = [
  { name: "no groups", system: without, tokens: none },
  { name: "no groups, login token", system: without, tokens: logins },
  { name: "groups of others in the access file", system: having, tokens: none },
  { name: "200 groups in the token, none in the access file", system: without, tokens: many },
  { name: "200 groups in the token and in the access file", system: having, tokens: many },
].map((one, at) => {
  const tokenFile = path.join(directory, `tokens-${at}`);
  writeFileSync(tokenFile, one.tokens.join("\n"));
  return { ...one, tokenFile, samples: [] as Awaited<ReturnType<typeof load>>[] };
});

for (let round = 1; round <= effort.rounds; round++) {
  for (const { system, tokenFile, samples } of cases) {
    const { port, program } = system;
    const { connections } = scenario;
    const sent = { port, connections, tokenFile, bodyFile: bodyFile(world, scenario) };
    const sample = (seconds: number) => load(program, { ...sent, seconds, core: LOAD_CORE });
    await sample(leadInSeconds(round));
    const taken = await sample(effort.seconds);
    if (taken.refused + taken.failed > 0) throw new Error(`${system.name} refused requests`);
    samples.push(taken);
  }
  console.error(`round ${round} of ${effort.rounds}`);
}
const costs = cases.map(({ name, samples }) => ({
  name,
  checks: "token and query" as const,
  cpu: summarize(samples.map(({ cpu }) => cpu)),
  rate: summarize(samples.map(({ rate }) => rate)),
}));
printFound(flags.json, { effort, costs }, () => costTable(costs));
