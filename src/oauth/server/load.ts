import type { Log } from "../../observe/log.ts";
import type { AuthorizationServer, AuthorizationServerOptions } from "./options.ts";

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
