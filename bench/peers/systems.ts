import { startGatehouse } from "./gatehouse.ts";
import { goPeers, startGo } from "./go-peers.ts";
import { hasGo } from "./go-program.ts";
import { startHaproxy } from "./haproxy.ts";
import { startNginx } from "./nginx.ts";
import { startNode } from "./node.ts";
import type { System } from "./system.ts";
import type { World } from "./world.ts";

/**
 * Starts the systems in turn, Gatehouse first; each is ended with the stack.
 *
 * @param isWide true for all peers, false for the nearest ones
 */
export async function startSystems(
  world: World,
  port: number,
  isWide: boolean,
  opened: AsyncDisposableStack,
): Promise<System[]> {
  const systems: System[] = [];
  async function add(starting: Promise<System>): Promise<void> {
    const system = await starting;
    opened.defer(() => system.program.stop());
    systems.push(system);
  }
  await add(startGatehouse(world, port));
  await add(startNode("bare", world, port));
  await add(startHaproxy(world, port, "ES256"));
  await add(startNode("fastify", world, port));
  if (!isWide) return systems;
  await add(startHaproxy(world, port, "RS256"));
  await add(startHaproxy(world, port, "HS256"));
  await add(startHaproxy(world, port, undefined));
  await add(startNginx(world, port));
  await add(startNode("express", world, port));
  if (!hasGo()) console.error("without Go, peers in Go are left out");
  else for (const peer of goPeers) await add(startGo(peer, world, port));
  return systems;
}
