import type { RequestOptions } from "node:http";
import { connect } from "node:net";
import { http } from "../node-http.ts";
import { engineName } from "../product.ts";
import { hostAndPort, type UpstreamTarget } from "./target.ts";

/** Milliseconds after which an upstream that takes no connection, or gives no answer, is down. */
const TIMEOUT_MS = 2000;
/** Milliseconds for which an upstream that was found up counts as up. */
const FRESH_MS = 1000;

/** How the health of an upstream is checked. */
export interface HealthCheckOptions {
  readonly target: UpstreamTarget;
  /**
   * What is asked for, to be answered with 2xx; empty: that it takes a connection is enough, unless
   * it is the engine, which says whether its database answers.
   */
  readonly path?: string;
  /** The `Authorization` header that goes with it, if any. */
  readonly authorization?: string | undefined;
}

/** True if the upstream takes a connection; nothing is sent on it. */
function takesConnection(target: UpstreamTarget): Promise<boolean> {
  return new Promise((resolve) => {
    const { origin, socketPath } = target;
    const address = socketPath === undefined ? hostAndPort(origin) : { path: socketPath };
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

/** What an upstream has answered to a health check. */
interface Health {
  /** True for a status of 2xx. */
  readonly isGood: boolean;
  readonly isEngine: boolean;
}

/** Asks the upstream for `GET` of the path, on a connection of its own; undefined: no answer. */
function ask(
  { target, authorization }: HealthCheckOptions,
  path: string,
): Promise<Health | undefined> {
  const { origin, socketPath } = target;
  const options: RequestOptions = {
    path,
    agent: false,
    signal: AbortSignal.timeout(TIMEOUT_MS),
    headers: authorization === undefined ? {} : { authorization },
    ...(socketPath === undefined ? {} : { socketPath }),
  };
  const request = origin.startsWith("https:")
    ? process.getBuiltinModule("node:https").request
    : http.request;
  return new Promise((resolve) => {
    const asked = request(origin, options, ({ statusCode = 0, headers }) => {
      const isGood = statusCode >= 200 && statusCode < 300;
      resolve({ isGood, isEngine: headers.server === engineName });
      asked.destroy();
    });
    asked.on("error", () => resolve(undefined));
    asked.end();
  });
}

/** Finds out whether the upstream is there, with one health check for all who ask at one moment. */
export class HealthCheck {
  readonly #options: HealthCheckOptions;
  #asking: Promise<boolean> | undefined;
  #isEngine: boolean | undefined;
  /** `performance.now()` until which the upstream counts as up. */
  #freshUntil = Number.NEGATIVE_INFINITY;

  constructor(options: HealthCheckOptions) {
    this.#options = options;
  }

  /** True if it is `gatehouse engine`; undefined until it has answered since it was last down. */
  get isEngine(): boolean | undefined {
    return this.#isEngine;
  }

  /** True if the upstream is there, or was within the last second. */
  async isUp(): Promise<boolean> {
    if (performance.now() < this.#freshUntil) return true;
    return this.check();
  }

  /** True if the upstream is there now. */
  check(): Promise<boolean> {
    this.#asking ??= this.#ask();
    return this.#asking;
  }

  async #ask(): Promise<boolean> {
    const { path = "" } = this.#options;
    const isUp =
      path === "" ? await this.#isThere() : ((await ask(this.#options, path))?.isGood ?? false);
    this.#freshUntil = isUp ? performance.now() + FRESH_MS : Number.NEGATIVE_INFINITY;
    this.#asking = undefined;
    return isUp;
  }

  async #isThere(): Promise<boolean> {
    if (this.#isEngine !== false) {
      const answer = await ask(this.#options, "/healthz");
      if (answer !== undefined) this.#isEngine = answer.isEngine;
      // One that was the engine and is mute is down; of any other a connection is enough.
      if (this.#isEngine) return answer?.isGood ?? false;
      if (answer !== undefined) return true;
    }
    const isThere = await takesConnection(this.#options.target);
    if (!isThere) this.#isEngine = undefined;
    return isThere;
  }
}
