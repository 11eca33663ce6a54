import type { Stats } from "node:fs";
import { open, rename, rm } from "node:fs/promises";
import path from "node:path";

/** Makes a rename in `directory` survive a power failure. */
export async function syncDirectory(directory: string): Promise<void> {
  const handle = await open(directory, "r");
  try {
    await handle.sync();
  } finally {
    await handle.close();
  }
}

/**
 * Replaces `file` atomically: a reader, or a power failure at any moment, finds either the old or
 * the new content, whole. The caller holds the file's lock.
 *
 * @param like mode and owner for the new file; by default 0600 and the caller's own
 * @throws the error of the file system; then the old content is still in place
 */
export async function replaceFile(
  file: string,
  content: string | Buffer,
  like?: Stats,
): Promise<void> {
  const directory = path.dirname(file);
  const temporary = path.join(directory, `.${path.basename(file)}.new`);
  await rm(temporary, { force: true });
  try {
    const handle = await open(temporary, "wx", 0o600);
    try {
      await handle.writeFile(content);
      if (like !== undefined) {
        const own = await handle.stat();
        if (own.uid !== like.uid || own.gid !== like.gid) await handle.chown(like.uid, like.gid);
        await handle.chmod(like.mode & 0o7777);
      }
      await handle.sync();
    } finally {
      await handle.close();
    }
    await rename(temporary, file);
  } catch (error) {
    await rm(temporary, { force: true });
    throw error;
  }
  await syncDirectory(directory);
}
