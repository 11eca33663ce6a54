import path from "node:path";
import type { LoadedConfiguration } from "../config/load.ts";
import { DatabaseFiles } from "../engine/sqlite/files.ts";

/** Where an engine of the gateway's own keeps its databases. */
export function dataDirectoryOf(serviceDirectory: string): string {
  return path.join(serviceDirectory, "data");
}

/** Those of an engine of the gateway's own; none before it has made its directory. */
function ownDatabases(serviceDirectory: string): string[] {
  try {
    return new DatabaseFiles(dataDirectoryOf(serviceDirectory)).names();
  } catch {
    return [];
  }
}

/** Databases that are there, as far as the gateway's own files tell. */
export function knownDatabases({ configuration, serviceDirectory }: LoadedConfiguration): string[] {
  const { auth, upstream } = configuration;
  const isElsewhere = upstream.url !== undefined || upstream.urls !== undefined;
  return [
    auth.default_database,
    ...upstream.databases.flatMap(({ databases }) => databases),
    ...(isElsewhere ? [] : ownDatabases(serviceDirectory)),
  ];
}
