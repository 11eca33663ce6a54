import { existsSync } from "node:fs";
import path from "node:path";
import type { LoadedConfiguration } from "../config/load.ts";
import { LockRefusedError, LockTimeoutError, withLock } from "../files/lock.ts";
import { makeServiceDirectory, StartError } from "./first-start.ts";
import { dataDirectoryOf } from "./own-engine.ts";

function inUse(serviceDirectory: string, data: string, cause: unknown): StartError {
  const isDefault = path.dirname(data) === serviceDirectory;
  const what = isDefault ? `service directory ${serviceDirectory}` : `databases in ${data}`;
  return new StartError(
    `another gateway already uses the ${what}: stop it first, or give this one a service directory ` +
      "of its own with $GATEHOUSE_HOME, or another upstream.url with --config",
    { cause },
  );
}

/**
 * Takes the embedded databases, if there are any, for this gateway alone: gateways before another
 * database may share a service directory. To be given back when the gateway stops taking requests:
 * the next one may start then, and its engine waits for this one's to end.
 *
 * @returns what gives them back; so does the end of the process, however it comes
 * @throws StartError if another gateway has them
 */
export async function claimDatabases(loaded: LoadedConfiguration): Promise<() => Promise<void>> {
  const { serviceDirectory } = loaded;
  const data = dataDirectoryOf(loaded);
  const unclaimed = async () => {};
  if (data === undefined) return unclaimed;
  await makeServiceDirectory(serviceDirectory);
  if (!existsSync(path.dirname(data))) return unclaimed;
  const taken = Promise.withResolvers<void>();
  const released = Promise.withResolvers<void>();
  const hold = (): Promise<void> => {
    taken.resolve();
    return released.promise;
  };
  const holding = withLock(data, hold, { mayBeFull: true, wait: 0 });
  try {
    await Promise.race([taken.promise, holding]);
  } catch (error) {
    // The engine has a lock of its own, and says what it may not write.
    if (error instanceof LockRefusedError) return unclaimed;
    throw error instanceof LockTimeoutError ? inUse(serviceDirectory, data, error) : error;
  }
  return () => {
    released.resolve();
    return holding;
  };
}
