import { once } from "node:events";
import { request } from "node:http";
import type { Test } from "tap";
import type { AnswerHead, AnswerReceiver } from "../../../src/upstream/http1/answer-reader.ts";
import { ConnectionPool } from "../../../src/upstream/http1/connection.ts";
import { parseTarget } from "../../../src/upstream/target.ts";
import { PATIENCE_MS } from "../../kit/eventually.ts";
import { type OnRequest, RawUpstream } from "../../kit/raw-upstream.ts";

const TIMEOUTS = { connect: PATIENCE_MS, response: PATIENCE_MS };

/** An answer as it was read, or the error in its place. */
export interface Read {
  status: number;
  headers: string[];
  body: string;
  interim: number;
  error: Error | undefined;
}

/** Gathers one answer. */
export class Gathered implements AnswerReceiver {
  readonly read: Promise<Read>;
  readonly #resolve: (read: Read) => void;
  readonly #so: Read = { status: 0, headers: [], body: "", interim: 0, error: undefined };

  constructor() {
    const { promise, resolve } = Promise.withResolvers<Read>();
    this.read = promise;
    this.#resolve = resolve;
  }

  onBytes(): void {}

  onInterim(): void {
    this.#so.interim++;
  }

  onHead({ status, headers }: AnswerHead): void {
    Object.assign(this.#so, { status, headers });
  }

  onData(piece: Buffer): void {
    this.#so.body += piece.toString("latin1");
  }

  onEnd(last: Buffer | undefined): void {
    this.#so.body += last?.toString("latin1") ?? "";
    this.#resolve(this.#so);
  }

  onError(error: Error): void {
    this.#resolve({ ...this.#so, error });
  }
}

/** An upstream below HTTP and a pool of connections to it; both end with the test. */
export async function connected(
  t: Test,
  onRequest: OnRequest,
): Promise<{ upstream: RawUpstream; pool: ConnectionPool }> {
  const upstream = await new RawUpstream(onRequest).listen();
  const pool = new ConnectionPool(parseTarget(upstream.url), TIMEOUTS);
  t.teardown(async () => {
    pool.close();
    await upstream.close();
  });
  return { upstream, pool };
}

/** Sends a request on a connection of the pool and reads the answer. */
export async function ask(pool: ConnectionPool, body = ""): Promise<Read> {
  const gathered = new Gathered();
  const head = `POST / HTTP/1.1\r\nHost: x\r\nContent-Length: ${body.length}\r\n\r\n`;
  pool.take().send(head, Buffer.from(body), gathered);
  return gathered.read;
}

/** Reads the same answer with Node's own client: undefined if that refuses it. */
export async function askNode(url: string): Promise<Pick<Read, "status" | "body"> | undefined> {
  const asked = request(url, { method: "POST", agent: false }).end();
  // What comes behind the answer may be an error of its own.
  asked.on("error", () => {});
  try {
    const [answer] = await once(asked, "response");
    let body = "";
    for await (const piece of answer.setEncoding("latin1")) body += piece;
    return { status: answer.statusCode, body };
  } catch {
    return undefined;
  }
}
