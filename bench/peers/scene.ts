import { openDirectory } from "../rig/opened.ts";
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
  const directory = openDirectory(opened);
  const world = await World.create(directory);
  const upstream = await startUpstream(directory);
  opened.defer(() => upstream.program.stop());
  return { world, upstream };
}
