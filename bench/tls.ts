/**
 * Measures TLS: a gateway with its own TLS against one behind a reverse proxy. Prints processor time of all
 * programs per request, with kept connections and with a handshake per request.
 *
 * `node bench/tls.ts [--rounds 5] [--seconds 3] [--json]`
 */
import { parseArgs } from "node:util";
import { makeCertificate } from "../test/kit/certificate.ts";
import { startGatehouse } from "./peers/gatehouse.ts";
import { measure } from "./peers/measure.ts";
import { prove } from "./peers/proof.ts";
import { costTable } from "./peers/report.ts";
import { type Scenario, scenarios } from "./peers/scenarios.ts";
import { openScene } from "./peers/scene.ts";
import type { System } from "./peers/system.ts";
import { startTlsProxy } from "./peers/tls-proxy.ts";
import { effortFlags } from "./rig/flags.ts";
import { describeMachine } from "./rig/machine.ts";

const { values: flags } = parseArgs({ options: effortFlags });
const effort = { rounds: Number(flags.rounds), seconds: Number(flags.seconds) };

const [usual] = scenarios;
if (usual === undefined) throw new Error("there is no scenario");
const kept: Scenario = { ...usual, name: `${usual.name} that are kept` };
const closed: Scenario = { ...usual, name: "a connection for each request", isClosing: true };

await using opened = new AsyncDisposableStack();
const { world, upstream } = await openScene(opened);
const port = upstream.ports.get(usual.answer) ?? 0;
const certificate = makeCertificate("localhost");

const systems: System[] = [];
async function add(starting: Promise<System>): Promise<System> {
  const system = await starting;
  opened.defer(() => system.program.stop());
  systems.push(system);
  return system;
}
await add(startGatehouse(world, port, { certificate, name: "Gatehouse with TLS" }));
const plain = await add(startGatehouse(world, port, { name: "Gatehouse without TLS" }));
await add(startTlsProxy("nginx", plain, world, certificate));
await add(startTlsProxy("HAProxy", plain, world, certificate));
await prove(plain, world);

const outcomes: Record<string, unknown> = {};
if (!flags.json) console.log(`${describeMachine().join("; ")}\n`);
for (const scenario of [kept, closed]) {
  const costs = await measure(scenario, systems, world, effort);
  outcomes[scenario.name] = costs;
  if (!flags.json) console.log(`## ${scenario.name}\n\n${costTable(costs)}\n`);
}
if (flags.json) {
  console.log(JSON.stringify({ machine: describeMachine(), effort, outcomes }, undefined, 2));
}
