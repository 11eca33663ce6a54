import { join } from "node:path";
import { LockRefusedError, LockTimeoutError, withLock } from "../../files/lock.ts";

/** Another engine has the directory open. */
export class DirectoryInUseError extends Error {
  constructor(directory: string, cause: unknown) {
    super(
      `Another engine has the databases in ${directory} open: stop it first, or give this one a directory of its own.`,
      { cause },
    );
    this.name = "DirectoryInUseError";
  }
}

/**
 * Takes a directory of databases for this engine alone and returns what gives it back; so does
 * the end of the process, however it comes. An engine that is ending is waited for.
 *
 * Throws `DirectoryInUseError` after ten seconds, or an `Error` if the directory takes no lock.
 */
export async function lockDirectory(directory: string): Promise<() => Promise<void>> {
  const taken = Promise.withResolvers<void>();
  const released = Promise.withResolvers<void>();
  const hold = (): Promise<void> => {
    taken.resolve();
    return released.promise;
  };
  const holding = withLock(join(directory, "engine"), hold, { mayBeFull: true });
  try {
    await Promise.race([taken.promise, holding]);
  } catch (error) {
    if (error instanceof LockTimeoutError) throw new DirectoryInUseError(directory, error);
    if (error instanceof LockRefusedError) {
      throw new Error(`The engine may not write in ${directory}.`, { cause: error });
    }
    throw error;
  }
  return () => {
    released.resolve();
    return holding;
  };
}
