import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import path from "node:path";
import { installPeers } from "./install.ts";
import { startUpstream, type Upstream } from "./upstream.ts";
import { World } from "./world.ts";

export interface Scene {
  readonly world: World;
  readonly upstream: Upstream;
}

/**
 * Installs missing peers, and starts users, keys and the upstream in a temporary directory until the stack
 * is disposed.
 */
export async function openScene(opened: AsyncDisposableStack): Promise<Scene> {
  installPeers();
  const directory = await mkdtemp(path.join(tmpdir(), "gatehouse-bench-"));
  // A gateway that stops may still write its compile cache.
  opened.defer(() => rm(directory, { recursive: true, force: true, maxRetries: 5 }));
  const world = await World.create(directory);
  const upstream = await startUpstream(directory);
  opened.defer(() => upstream.program.stop());
  return { world, upstream };
}
