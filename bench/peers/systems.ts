import { existsSync } from "node:fs";
import path from "node:path";
import { reasonOf } from "../install.ts";
import { startEnvoy } from "./envoy.ts";
import { startGatehouse } from "./gatehouse.ts";
import { goPeers, startGo } from "./go-peers.ts";
import { startHaproxy } from "./haproxy.ts";
import { startNginx } from "./nginx.ts";
import { startNode } from "./node.ts";
import type { System } from "./system.ts";
import type { World } from "./world.ts";

type Start = (world: World, port: number) => Promise<System>;

/** Start functions by short name, in the order of the tables. */
const starts: ReadonlyMap<string, Start> = new Map<string, Start>([
  ["gatehouse", startGatehouse],
  ["bare", (world, port) => startNode("bare", world, port)],
  ["haproxy-es256", (world, port) => startHaproxy(world, port, "ES256")],
  ["envoy", startEnvoy],
  ["fastify", (world, port) => startNode("fastify", world, port)],
  ["haproxy-rs256", (world, port) => startHaproxy(world, port, "RS256")],
  ["haproxy-hs256", (world, port) => startHaproxy(world, port, "HS256")],
  ["haproxy-open", (world, port) => startHaproxy(world, port, undefined)],
  ["nginx", startNginx],
  ["express", (world, port) => startNode("express", world, port)],
  ...goPeers.map((peer): [string, Start] => [
    peer.name,
    (world, port) => startGo(peer, world, port),
  ]),
]);
const names = [...starts.keys()];
/** The number of systems that run every scenario. */
export const NEAREST = 5;
/** Programs that these systems need; without them they are left out. */
const tools: readonly (readonly [tool: string, names: readonly string[]])[] = [
  ["python3", ["envoy"]],
  ["go", goPeers.map(({ name }) => name)],
];

export function isOnPath(tool: string): boolean {
  return (process.env.PATH ?? "").split(":").some((place) => existsSync(path.join(place, tool)));
}

/** The systems to measure besides Gatehouse, which is the first of every table. */
interface Selection {
  /** Short names of all systems. */
  readonly all: readonly string[];
  /** Those that also run every later scenario. */
  readonly nearest: readonly string[];
}

/**
 * Parses a comma-separated list of short names; by default all that can be built here.
 *
 * @throws Error for an unknown name
 */
export function selectSystems(list: string | undefined): Selection {
  if (list !== undefined) {
    const asked = new Set(["gatehouse", ...list.split(",")]);
    const unknown = [...asked].filter((name) => !starts.has(name));
    if (unknown.length > 0) {
      throw new Error(`no system ${unknown.join(", ")}; allowed: ${names.join(", ")}`);
    }
    const all = names.filter((name) => asked.has(name));
    return { all, nearest: all };
  }
  const missing = new Set<string>();
  for (const [tool, lacking] of tools) {
    if (isOnPath(tool)) continue;
    console.error(`without ${tool}, these are left out: ${lacking.join(", ")}`);
    for (const name of lacking) missing.add(name);
  }
  const all = names.filter((name) => !missing.has(name));
  return { all, nearest: all.slice(0, NEAREST) };
}

const leftOut = new Set<string>();

/** Starts these systems, but for peers that cannot be built or started; they stop with the stack. */
export async function startSystems(
  world: World,
  port: number,
  wanted: readonly string[],
  opened: AsyncDisposableStack,
): Promise<System[]> {
  const systems: System[] = [];
  for (const name of wanted) {
    if (leftOut.has(name)) continue;
    try {
      const system = await starts.get(name)?.(world, port);
      if (system === undefined) continue;
      opened.defer(() => system.program.stop());
      systems.push(system);
    } catch (error) {
      if (name === "gatehouse") throw error;
      leftOut.add(name);
      console.error(`${name} is left out: ${reasonOf(error)}`);
    }
  }
  return systems;
}
