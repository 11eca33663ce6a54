import { openSqliteStore } from "./sqlite/store.ts";
import type { Store } from "./store.ts";

/**
 * Opens the database that a URL names: `sqlite:DIRECTORY`. A query may take `queryTimeLimit`
 * milliseconds.
 *
 * Throws an `Error` whose message says what is wrong with the URL or the directory, and
 * `DirectoryInUseError`.
 */
export async function openStore(url: string, queryTimeLimit: number): Promise<Store> {
  const scheme = url.slice(0, url.indexOf(":") + 1);
  if (scheme === "sqlite:") return openSqliteStore(sqliteDirectory(url), queryTimeLimit);
  throw new Error(
    `The engine cannot open a database of the kind "${scheme || url}": this version speaks sqlite only (sqlite:DIRECTORY).`,
  );
}

function sqliteDirectory(url: string): string {
  const directory = url.replace(/^sqlite:(\/\/(?=\/))?/, "");
  if (directory === "") throw new Error("The engine's URL names no directory: sqlite:DIRECTORY.");
  return directory;
}
