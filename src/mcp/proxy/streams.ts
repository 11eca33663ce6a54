import type { IncomingMessage, ServerResponse } from "node:http";
import { McpRefused } from "../json-rpc.ts";
import type { Judged } from "./judged-request.ts";

/**
 * Streams that one user may have open at one time, one for each session that is remembered. Servers
 * have room for some number of all users together, which no one user is to fill.
 */
const MOST_PER_USER = 100;

/** True for a request whose answer only tells of changes, for as long as its client likes. */
export function isSubscription({ method }: IncomingMessage, { message }: Judged): boolean {
  return message === undefined ? method === "GET" : message.method === "subscriptions/listen";
}

/** How many streams of changes each user has open, counted here or in another process. */
export interface StreamRegister {
  /** Counts a stream as the user's until its answer is over. @throws McpRefused `tooManyStreams` */
  open(username: string, response: ServerResponse, id: McpRefused["id"]): void | Promise<void>;
}

/** The refusal of a stream beyond those that a user may have open. */
export function tooManyStreams(id: McpRefused["id"], most = MOST_PER_USER): McpRefused {
  const problem = `Too many streams: close one of the ${most} that are open`;
  return new McpRefused("tooManyStreams", problem, { status: 429, id });
}

/** How many streams of changes each user has open. */
export class OpenStreams implements StreamRegister {
  readonly #most: number;
  readonly #counts = new Map<string, number>();

  constructor(most = MOST_PER_USER) {
    this.#most = most;
  }

  get size(): number {
    return this.#counts.size;
  }

  open(username: string, response: ServerResponse, id: McpRefused["id"]): void {
    if (!this.take(username)) throw tooManyStreams(id, this.#most);
    response.once("close", () => this.release(username));
  }

  /** Counts a stream until it is given back; false if the user has too many open. */
  take(username: string): boolean {
    const count = this.#counts.get(username) ?? 0;
    if (count >= this.#most) return false;
    this.#counts.set(username, count + 1);
    return true;
  }

  release(username: string): void {
    const left = (this.#counts.get(username) ?? 0) - 1;
    if (left > 0) this.#counts.set(username, left);
    else this.#counts.delete(username);
  }
}
