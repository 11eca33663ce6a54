import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import path from "node:path";
import { installPeers } from "./install.ts";
import { startUpstream, type Upstream } from "./upstream.ts";
import { World } from "./world.ts";

/** What every measurement beside peers starts from. */
export interface Scene {
  readonly world: World;
  readonly upstream: Upstream;
}

/**
 * Makes sure of the peers, and opens users, keys and the upstream in a directory of their own; all
 * of it ends with the stack.
 */
export async function openScene(opened: AsyncDisposableStack): Promise<Scene> {
  installPeers();
  const directory = await mkdtemp(path.join(tmpdir(), "gatehouse-bench-"));
  // A gateway that ends may still write what it has compiled.
  opened.defer(() => rm(directory, { recursive: true, force: true, maxRetries: 5 }));
  const world = await World.create(directory);
  const upstream = await startUpstream(directory);
  opened.defer(() => upstream.program.stop());
  return { world, upstream };
}
