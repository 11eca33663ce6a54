import path from "node:path";
import type { Log } from "../../observe/log.ts";
import type { AuthorizationServer, AuthorizationServerOptions } from "./options.ts";

/** Where the authorization server of a gateway keeps its state and its keys. */
export function directoryOf(serviceDirectory: string): string {
  return path.join(serviceDirectory, "oauth");
}

/** The file of the state in that directory. */
export function stateFileIn(directory: string): string {
  return path.join(directory, "state.sqlite");
}

/**
 * Loads and opens the authorization server. Its library is loaded only where it is used, and tells
 * the console of a Node that it does not know by the name of its release: that goes to the log.
 */
export async function loadAuthorizationServer(
  options: AuthorizationServerOptions,
  log: Log,
): Promise<AuthorizationServer> {
  const out = console;
  const { warn } = out;
  out.warn = (text: unknown) => log.debug({ text: String(text) }, "authorization server library");
  try {
    const { openAuthorizationServer } = await import("./server.ts");
    return await openAuthorizationServer(options);
  } finally {
    out.warn = warn;
  }
}
