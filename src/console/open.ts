import { randomBytes } from "node:crypto";
import { once } from "node:events";
import { createServer } from "node:http";
import { getRequestListener } from "@hono/node-server";
import { createFormGuard } from "../pages/form-guard.ts";
import { AccessHistory } from "./access-history.ts";
import { createApp } from "./app.ts";
import type { ConsoleOptions } from "./options.ts";
import { Sessions } from "./sessions.ts";

/** A console that listens. */
export interface RunningConsole {
  /** How browsers reach it. */
  readonly url: string;
  close(): Promise<void>;
}

/** Starts the console. @throws the system's error if it cannot listen */
export async function openConsole(options: ConsoleOptions): Promise<RunningConsole> {
  const { access, revocations, listen, publicUrl } = options;
  const context = { snapshot: () => access.snapshot, revocations };
  const sessions = new Sessions(context, () => performance.now(), options.shared?.sessions);
  const guard = createFormGuard(options.shared?.formSecret ?? randomBytes(32));
  const history = new AccessHistory(access, options.earlierVersions ?? (async () => []));
  let port = listen.port;
  const app = createApp({ options, sessions, guard, history }, () => port);
  const server = createServer(
    { requestTimeout: options.requestTimeout, headersTimeout: options.requestTimeout },
    // The library would else put its own Request and Response in the place of Node's, everywhere.
    getRequestListener(app.fetch, { overrideGlobalObjects: false }),
  );
  server.listen(listen);
  await once(server, "listening");
  const address = server.address();
  if (address !== null && typeof address === "object") port = address.port;
  const host = listen.host.includes(":") ? `[${listen.host}]` : listen.host;
  return {
    url: publicUrl || `http://${host}:${port}`,
    async close() {
      const closed = once(server, "close");
      server.close();
      server.closeAllConnections();
      await closed;
    },
  };
}
