import { connect } from "node:net";
import type { UpstreamTarget } from "./target.ts";

/** Milliseconds after which an upstream that takes no connection counts as down. */
const TIMEOUT_MS = 2000;

/** True if the upstream takes a connection; nothing is sent on it. */
export function isReachable({ origin, socketPath }: UpstreamTarget): Promise<boolean> {
  const { hostname, port, protocol } = new URL(origin);
  const address =
    socketPath === undefined
      ? {
          host: hostname.replace(/^\[(.*)\]$/, "$1"),
          port: Number(port) || (protocol === "https:" ? 443 : 80),
        }
      : { path: socketPath };
  return new Promise((resolve) => {
    const socket = connect({ ...address, timeout: TIMEOUT_MS });
    const finish = (reachable: boolean) => {
      socket.destroy();
      resolve(reachable);
    };
    socket.once("connect", () => finish(true));
    socket.once("timeout", () => finish(false));
    socket.once("error", () => finish(false));
  });
}
