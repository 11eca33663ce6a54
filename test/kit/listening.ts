import type { Server } from "node:http";
import type { AddressInfo } from "node:net";

/** Listens on a free port until the test ends. @returns the port */
export async function listening(
  test: { teardown(work: () => unknown): void },
  server: Pick<Server, "listen" | "address" | "close" | "closeAllConnections">,
): Promise<number> {
  const { promise, resolve } = Promise.withResolvers<void>();
  server.listen(0, "127.0.0.1", resolve);
  await promise;
  test.teardown(() => {
    server.close();
    server.closeAllConnections();
  });
  const address: AddressInfo | string | null = server.address();
  if (typeof address === "string" || address === null) throw new Error("no port");
  return address.port;
}
