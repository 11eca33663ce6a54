import {
  closeSync,
  existsSync,
  fsyncSync,
  mkdirSync,
  openSync,
  readdirSync,
  rmSync,
} from "node:fs";
import { join, resolve } from "node:path";
import { LockRefusedError, LockTimeoutError, withLock } from "../../files/lock.ts";
import { isPlainName } from "../../query/names.ts";
import { foldCase } from "../fold-case.ts";
import { EngineRefusal } from "../refusal.ts";

/** The database that is always there. */
export const defaultDatabase = "main";

const suffix = ".sqlite";
const journalSuffixes = ["-journal", "-wal", "-shm"];

/** The files of a directory of databases, one a database. Nothing here opens one with SQLite. */
export class DatabaseFiles {
  /** An absolute path. */
  readonly directory: string;

  constructor(directory: string) {
    this.directory = resolve(directory);
  }

  /**
   * Makes the directory (mode 0700) if needed, but not the one that it is in: that may have been
   * moved away with the databases. @throws the file system's error
   */
  makeDirectory(): void {
    if (!existsSync(this.directory)) mkdirSync(this.directory, { mode: 0o700 });
  }

  /** Makes the default database if there is none. @throws the file system's error */
  makeDefault(): void {
    if (!this.#found().includes(defaultDatabase)) this.#createFile(defaultDatabase);
  }

  /** The names of all databases, sorted. */
  names(): string[] {
    return this.#found().filter(isPlainName).sort();
  }

  /** Where a database's file is, or would be. */
  path(name: string): string {
    return join(this.directory, name + suffix);
  }

  /** @throws EngineRefusal `database_not_found` unless there is a database of exactly this name */
  requireExisting(name: string): void {
    if (this.#found().includes(name)) return;
    throw new EngineRefusal("database_not_found", `There is no database ${name}`);
  }

  /** Refuses to drop what has to stay. @throws EngineRefusal `database_not_found` or `database_protected` */
  requireDroppable(name: string): void {
    this.requireExisting(name);
    if (name !== defaultDatabase) return;
    throw new EngineRefusal("database_protected", `Database ${name} cannot be dropped`);
  }

  /**
   * Makes an empty database. @throws EngineRefusal `database_exists`, also if the name differs only by case
   * from an existing one, since both would be one file where the file system folds case
   */
  create(name: string): void {
    const taken = this.#found().find((other) => foldCase(other) === foldCase(name));
    if (taken !== undefined) {
      throw new EngineRefusal("database_exists", `Database ${taken} exists already`);
    }
    this.#createFile(name);
  }

  /** Deletes a database with its journals. @throws the file system's error */
  remove(name: string): void {
    this.#removeJournals(name);
    rmSync(this.path(name));
    this.#syncDirectory();
  }

  #createFile(name: string): void {
    // A journal that outlived its database must not be played back into the new one.
    this.#removeJournals(name);
    closeSync(openSync(this.path(name), "wx", 0o600));
    this.#syncDirectory();
  }

  #removeJournals(name: string): void {
    for (const journal of journalSuffixes) rmSync(this.path(name) + journal, { force: true });
  }

  /** Read from the directory, since a file system that folds case would find any spelling. */
  #found(): string[] {
    return readdirSync(this.directory)
      .filter((entry) => entry.endsWith(suffix))
      .map((entry) => entry.slice(0, -suffix.length));
  }

  #syncDirectory(): void {
    const directory = openSync(this.directory, "r");
    try {
      fsyncSync(directory);
    } finally {
      closeSync(directory);
    }
  }
}

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
 * @throws DirectoryInUseError after ten seconds, or an Error if the directory takes no lock
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
