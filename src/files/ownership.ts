import { chown, stat } from "node:fs/promises";
import path from "node:path";

/**
 * Gives what root has made in a service's directory to the directory's owner, or the service could
 * not use it. Does nothing for anybody else.
 */
export async function giveToDirectoryOwner(file: string): Promise<void> {
  if (process.getuid?.() !== 0) return;
  const { uid, gid } = await stat(path.dirname(file));
  await chown(file, uid, gid);
}
