import { LRUCache } from "lru-cache";
import type { Exchange } from "../../core/http/exchange.ts";
import type { Gateway } from "../../core/http/gateway.ts";
import { parseIfJson, parseUnrounded } from "../../core/json/exact.ts";
import { BufferedAnswer, type QueryAnswer } from "../../core/upstream/answer-stream.ts";
import type { ForwardedRequest } from "../../core/upstream/database.ts";
import { credentialHeaders, fieldIn, fieldLines } from "../../core/upstream/headers.ts";
import { brokenAnswer } from "./body.ts";
import type { Json, LookupAnswer } from "./preset.ts";

const MAX_REMEMBERED = 10_000;
/** Of all remembered answers, and of one. An expired one stays until it is replaced. */
const REMEMBERED_BYTES = 16 * 1024 * 1024;
const LARGEST_REMEMBERED_BYTES = 1024 * 1024;
const LARGEST_BYTES = 32 * 1024 * 1024;

interface Found extends LookupAnswer {
  readonly length: number;
}

export class Lookups {
  readonly #gateway: Gateway;
  /** Of the upstream's last answer, without which clients of Elasticsearch accept no answer. */
  product: string | undefined;
  readonly #known = new LRUCache<string, Promise<Found>>({
    max: MAX_REMEMBERED,
    maxSize: REMEMBERED_BYTES,
    maxEntrySize: LARGEST_REMEMBERED_BYTES,
  });

  constructor(gateway: Gateway) {
    this.#gateway = gateway;
  }

  /**
   * `GET`, with the gateway's credential alone.
   *
   * @param rememberMs how long the answer of a 200 may be used again; 0: not at all
   * @throws Refusal `upstream_broken` for a status of 500 and more, and as `forward` does
   */
  ask(path: string, rememberMs: number, exchange?: Exchange): Promise<LookupAnswer> {
    const known = rememberMs === 0 ? undefined : this.#known.get(path);
    if (known !== undefined) return known;
    // Others may wait for an answer that is remembered, so it does not end with this client.
    const answer = this.#look(path, rememberMs === 0 ? exchange : undefined);
    if (rememberMs > 0) {
      this.#known.set(path, answer, { ttl: rememberMs, size: 1 });
      const forget = () => {
        if (this.#known.peek(path) === answer) this.#known.delete(path);
      };
      answer.then(({ status, length }) => {
        if (status !== 200) forget();
        else if (this.#known.peek(path) === answer) {
          this.#known.set(path, answer, { noUpdateTTL: true, size: length + 1 });
        }
      }, forget);
    }
    return answer;
  }

  async #look(path: string, exchange: Exchange | undefined): Promise<Found> {
    const fields = { accept: "application/json", ...credentialHeaders(this.#gateway.headers) };
    const answer = await this.send(exchange, {
      // Not the caller's: a flood of one user must not keep others from being judged.
      user: "",
      authorizeAgain: undefined,
      requestId: exchange?.requestId ?? "",
      fields: fieldLines(fields),
      method: "GET",
      path,
      body: Buffer.alloc(0),
      isRead: true,
    });
    const { status } = answer;
    if (status >= 500) throw brokenAnswer(`${status} for a lookup`);
    return { status, body: readAnswer(answer.body), length: answer.body.length };
  }

  async send(exchange: Exchange | undefined, request: ForwardedRequest): Promise<QueryAnswer> {
    const gone = new AbortController();
    const abort = () => gone.abort();
    exchange?.response.once("close", abort);
    try {
      const sink = new BufferedAnswer({
        signal: gone.signal,
        largest: LARGEST_BYTES,
        hold: (bytes) => {
          if (exchange !== undefined) this.#gateway.budget.take(exchange, bytes);
        },
      });
      this.#gateway.routing.databaseOf(undefined).forward(request, sink);
      const answer = await sink.answer;
      this.product = fieldIn(answer.headers, "x-elastic-product");
      if (answer.isCut) throw brokenAnswer("the answer is too large");
      return answer;
    } finally {
      exchange?.response.off("close", abort);
    }
  }
}

/** Undefined if it is not JSON. */
export function readAnswer(body: Buffer): Json | undefined {
  return parseIfJson(body.toString(), parseUnrounded);
}
