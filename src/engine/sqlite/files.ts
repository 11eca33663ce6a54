import {
  closeSync,
  existsSync,
  fsyncSync,
  mkdirSync,
  openSync,
  readdirSync,
  rmSync,
  statSync,
} from "node:fs";
import { join, resolve } from "node:path";
import type { Logger } from "pino";
import { LockRefusedError, LockTimeoutError, takeLock } from "../../core/base/files/lock.ts";
import { foldCase, isPlainName } from "../../core/query/names.ts";
import { EngineRefusal } from "../refusal.ts";

export const defaultDatabase = "main";

const suffix = ".sqlite";
const journalSuffixes = ["-journal", "-wal", "-shm"];

/** A directory of databases, one file each. This class never opens a file with SQLite. */
export class DatabaseFiles {
  readonly directory: string;

  constructor(directory: string) {
    this.directory = resolve(directory);
  }

  /** Does not create the parent, which may have been moved away with the databases. */
  makeDirectory(log: Logger): void {
    if (existsSync(this.directory)) return;
    mkdirSync(this.directory, { mode: 0o700 });
    log.info({ directory: this.directory }, "created the missing directory of databases");
  }

  makeDefault(): void {
    if (!this.#found().includes(defaultDatabase)) this.#createFile(defaultDatabase);
  }

  names(): string[] {
    const isFile = (name: string) => isPlainName(name) && this.fileAt(name) !== undefined;
    return this.#found().filter(isFile).sort();
  }

  path(name: string): string {
    return join(this.directory, name + suffix);
  }

  /** Tells files apart that have the same path one after the other. */
  fileAt(name: string): string | undefined {
    try {
      const stats = statSync(this.path(name), { throwIfNoEntry: false });
      return stats?.isFile() ? `${stats.dev} ${stats.ino}` : undefined;
    } catch (error) {
      // It is there, and SQLite says that it cannot be opened.
      return error instanceof Error ? error.message : "unreadable";
    }
  }

  has(name: string): boolean {
    return this.#found().includes(name) && this.fileAt(name) !== undefined;
  }

  requireExisting(name: string): void {
    if (this.has(name)) return;
    throw new EngineRefusal("database_not_found", `There is no database ${name}`);
  }

  requireDroppable(name: string): void {
    this.requireExisting(name);
    if (name !== defaultDatabase) return;
    throw new EngineRefusal("database_protected", `Database ${name} cannot be dropped`);
  }

  create(name: string): void {
    const existing = this.#found().find((other) => foldCase(other) === foldCase(name));
    if (existing !== undefined) {
      throw new EngineRefusal("database_exists", `Database ${existing} already exists`);
    }
    this.#createFile(name);
  }

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

  /** Reads the directory, since some file systems ignore case. */
  #found(): string[] {
    try {
      return readdirSync(this.directory)
        .filter((entry) => entry.endsWith(suffix))
        .map((entry) => entry.slice(0, -suffix.length));
    } catch (cause) {
      const problem = "The database files are missing or cannot be read";
      throw new EngineRefusal("database_unavailable", problem, { cause });
    }
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

/**
 * Locks a directory and returns a function that unlocks it, as the end of the process also does.
 * Waits for an engine that is shutting down.
 *
 * @throws Error after ten seconds, and if the directory cannot be locked
 */
export async function lockDirectory(directory: string): Promise<() => void> {
  try {
    return await takeLock(join(directory, "engine"));
  } catch (error) {
    if (error instanceof LockTimeoutError) {
      const remedy = "Stop it, or use another directory.";
      throw new Error(`Another engine uses the databases in ${directory}. ${remedy}`, {
        cause: error,
      });
    }
    if (error instanceof LockRefusedError) {
      throw new Error(`The engine may not write to ${directory}.`, { cause: error });
    }
    throw error;
  }
}
