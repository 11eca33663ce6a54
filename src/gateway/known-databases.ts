import type { LoadedConfiguration } from "../config/load.ts";
import { DatabaseFiles } from "../engine/sqlite/files.ts";
import { dataDirectoryOf } from "./own-engine.ts";

/** Those of an engine of the gateway's own; none before it has made its directory. */
function ownDatabases(loaded: LoadedConfiguration): string[] {
  const directory = dataDirectoryOf(loaded);
  if (directory === undefined) return [];
  try {
    return new DatabaseFiles(directory).names();
  } catch {
    return [];
  }
}

/** Databases that are there, as far as the gateway's own files tell. */
export function knownDatabases(loaded: LoadedConfiguration): string[] {
  const { auth, upstream } = loaded.configuration;
  return [
    auth.default_database,
    ...upstream.databases.flatMap(({ databases }) => databases),
    ...ownDatabases(loaded),
  ];
}
