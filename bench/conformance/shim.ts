import { once } from "node:events";
import { createServer, request as open } from "node:http";
import type { AddressInfo } from "node:net";
import { pipeline } from "node:stream";

/**
 * Forwards everything to `target` with a bearer token, which the suite does not send. `Host`, `Origin`
 * and all other headers stay unchanged.
 *
 * @returns the URL to use instead
 */
export async function startShim(
  target: string,
  token: string,
  opened: AsyncDisposableStack,
): Promise<string> {
  const { hostname, port, pathname } = new URL(target);
  const server = createServer((request, response) => {
    const { method, url: path, headers } = request;
    const options = { hostname, port, method, path, agent: false };
    const upward = open({
      ...options,
      headers: { ...headers, authorization: `Bearer ${token}` },
    });
    upward.once("response", (answer) => {
      response.writeHead(answer.statusCode ?? 502, answer.headers);
      response.flushHeaders();
      pipeline(answer, response, () => upward.destroy());
    });
    upward.once("error", () => response.destroy());
    response.once("close", () => upward.destroy());
    request.pipe(upward);
  });
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  opened.defer(() => {
    server.close();
    server.closeAllConnections();
  });
  const address: AddressInfo | string | null = server.address();
  return `http://127.0.0.1:${typeof address === "object" ? address?.port : ""}${pathname}`;
}
