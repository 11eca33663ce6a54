import { once } from "node:events";
import { createServer } from "node:net";

/** Below those that systems choose from when somebody connects, which takes them at any time. */
const FIRST = 10_000;
const LAST = 32_000;

/** A port of 127.0.0.1 that nothing listens on just now, and that no connection is given. */
export async function freePort(): Promise<number> {
  for (;;) {
    const port = FIRST + Math.floor(Math.random() * (LAST - FIRST));
    const server = createServer();
    const isFree = await new Promise<boolean>((resolve) => {
      server.once("error", () => resolve(false));
      server.listen(port, "127.0.0.1", () => resolve(true));
    });
    if (!isFree) continue;
    server.close();
    await once(server, "close");
    return port;
  }
}
