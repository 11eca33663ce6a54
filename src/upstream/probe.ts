import { connect } from "node:net";
import type { UpstreamTarget } from "./target.ts";

/** Milliseconds after which an upstream that takes no connection counts as down. */
const TIMEOUT_MS = 2000;
/** Milliseconds for which an upstream that took one counts as up. */
const FRESH_MS = 1000;

/** True if the upstream takes a connection; nothing is sent on it. */
function takesConnection({ origin, socketPath }: UpstreamTarget): Promise<boolean> {
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

/** Finds out whether the upstream is there, with one connection for all who ask at one moment. */
export class Probe {
  readonly #target: UpstreamTarget;
  #asking: Promise<boolean> | undefined;
  /** `performance.now()` until which the upstream counts as up. */
  #freshUntil = Number.NEGATIVE_INFINITY;

  constructor(target: UpstreamTarget) {
    this.#target = target;
  }

  /** True if the upstream takes a connection, or took one within the last second. */
  async isUp(): Promise<boolean> {
    if (performance.now() < this.#freshUntil) return true;
    this.#asking ??= this.#ask();
    return this.#asking;
  }

  async #ask(): Promise<boolean> {
    const isUp = await takesConnection(this.#target);
    if (isUp) this.#freshUntil = performance.now() + FRESH_MS;
    this.#asking = undefined;
    return isUp;
  }
}
