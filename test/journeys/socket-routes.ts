import type { TestGateway } from "../kit/gateway.ts";
import type { SocketClient } from "../kit/web-socket.ts";

/** Routes that open sockets. */
export const socketRoutes = `
[[routes]]
path = "/public/live"
access = "public"
upgrade = true
[[routes]]
path = "/live"
access = "authenticated"
upgrade = true
[[routes]]
path = "/brief"
access = "authenticated"
upgrade = true
upgrade_idle_timeout = 1
[[routes]]
path = "/db/:database/live"
access = "INSERT"
upgrade = true
[[routes]]
path = "/db/:database/plain"
access = "INSERT"
`;
/** The audit's line for the request that opened a socket. */
export function auditOf({ answer }: SocketClient, { service }: TestGateway) {
  const id = answer.headers["x-request-id"];
  return service.logged(({ audit, requestId }) => audit !== undefined && requestId === id);
}
