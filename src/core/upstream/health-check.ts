import type { IncomingMessage, RequestOptions } from "node:http";
import { text } from "node:stream/consumers";
import { http } from "../base/node-http.ts";
import type { UpstreamCredential } from "./credential.ts";
import { socketMaker } from "./http1/connection.ts";
import { hostAndPort, type UpstreamTarget } from "./target.ts";

/** An upstream that does not connect or respond within this time is down. */
const TIMEOUT_MS = 2000;
const FRESH_MS = 1000;
export const ANSWER_TIMEOUT_SECONDS = 60;

/** True if the upstream accepts a connection, by TLS for https. Sends no request on it. */
export function takesConnection(target: UpstreamTarget): Promise<boolean> {
  return new Promise((resolve) => {
    const socket = socketMaker(target)({});
    const finish = (reachable: boolean) => {
      socket.destroy();
      resolve(reachable);
    };
    // `secureConnect` comes after the peer has been verified.
    socket.once("encrypted" in socket ? "secureConnect" : "connect", () => finish(true));
    socket.setTimeout(TIMEOUT_MS, () => finish(false));
    socket.once("error", () => finish(false));
  });
}

function request(
  { origin, socketPath }: UpstreamTarget,
  options: RequestOptions,
  body?: string | Buffer,
): Promise<IncomingMessage> {
  const { request: send } = origin.startsWith("https:")
    ? process.getBuiltinModule("node:https")
    : http;
  const place = socketPath === undefined ? hostAndPort(origin) : { socketPath };
  return new Promise((resolve, reject) => {
    send({ ...place, ...options }, resolve)
      .on("error", reject)
      .end(body);
  });
}

export interface WholeAnswer {
  readonly status: number;
  readonly type: string;
  readonly text: string;
}

/** Rejects unless a complete response arrives in time. */
export async function askTarget(
  target: UpstreamTarget,
  { body, ...options }: RequestOptions & { readonly body?: string | Buffer },
): Promise<WholeAnswer> {
  const signal = AbortSignal.timeout(ANSWER_TIMEOUT_SECONDS * 1000);
  try {
    const response = await request(target, { signal, ...options }, body);
    return {
      status: response.statusCode ?? 0,
      type: response.headers["content-type"] ?? "",
      text: await text(response),
    };
  } catch (error) {
    if (!signal.aborted) throw error;
    const reason = `timed out after ${ANSWER_TIMEOUT_SECONDS} seconds; check the address, and the server's log`;
    throw new Error(reason, { cause: error });
  }
}

/** True if the upstream answers a `GET` of the path with 2xx. */
export async function answersWell(
  target: UpstreamTarget,
  path: string,
  credential: UpstreamCredential | undefined,
): Promise<boolean> {
  const signal = AbortSignal.timeout(TIMEOUT_MS);
  const headers = credential === undefined ? {} : { [credential.header]: credential.value };
  try {
    const response = await request(target, { path, agent: false, signal, headers });
    const { statusCode = 0 } = response;
    response.destroy();
    return statusCode >= 200 && statusCode < 300;
  } catch {
    return false;
  }
}

/** Remembers for a second that a database is up. Concurrent callers share one check. */
export class HealthCheck {
  readonly #ask: () => Promise<boolean>;
  #asking: Promise<boolean> | undefined;
  /** `performance.now()` until which the database counts as up. */
  #freshUntil = Number.NEGATIVE_INFINITY;

  /** @param ask never rejects */
  constructor(ask: () => Promise<boolean>) {
    this.#ask = ask;
  }

  async isUp(): Promise<boolean> {
    if (performance.now() < this.#freshUntil) return true;
    return this.check();
  }

  check(): Promise<boolean> {
    this.#asking ??= this.#check();
    return this.#asking;
  }

  async #check(): Promise<boolean> {
    const isUp = await this.#ask();
    this.#freshUntil = isUp ? performance.now() + FRESH_MS : Number.NEGATIVE_INFINITY;
    this.#asking = undefined;
    return isUp;
  }
}
