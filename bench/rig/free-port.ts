import { once } from "node:events";
import { createServer } from "node:net";

/** A port of loopback that nobody listens on now, for programs that cannot choose one. */
export async function freePort(): Promise<number> {
  const server = createServer();
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  const address = server.address();
  server.close();
  await once(server, "close");
  return typeof address === "object" && address !== null ? address.port : 0;
}
