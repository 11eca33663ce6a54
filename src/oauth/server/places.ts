import path from "node:path";

/** Where the authorization server of a gateway keeps its state and its keys. */
export function directoryOf(serviceDirectory: string): string {
  return path.join(serviceDirectory, "oauth");
}

/** The file of the state in that directory. */
export function stateFileIn(directory: string): string {
  return path.join(directory, "state.sqlite");
}
