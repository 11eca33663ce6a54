import type { Dispatcher } from "undici";
import { Refusal } from "../refusal.ts";
import { asRefusal } from "./failure.ts";

/** An answer of the upstream that is held whole. */
export interface QueryAnswer {
  readonly status: number;
  readonly body: Buffer;
}

/** A query whose answer the gateway itself has a use for. */
export interface QueryAsk {
  readonly body: Buffer;
  readonly headers: Record<string, string | string[]>;
  /** Gives the query up. */
  readonly signal: AbortSignal;
}

/** Bytes of an answer that is held whole; more is for `POST /query`, which streams. */
const LARGEST_ANSWER_BYTES = 32 * 1024 * 1024;

async function readAnswer(body: AsyncIterable<Buffer>): Promise<Buffer> {
  const pieces: Buffer[] = [];
  let length = 0;
  for await (const piece of body) {
    length += piece.length;
    if (length > LARGEST_ANSWER_BYTES) {
      throw new Refusal("upstream_broken", { detail: "the answer is too large to be held" });
    }
    pieces.push(piece);
  }
  return Buffer.concat(pieces, length);
}

/**
 * Sends a query and reads the whole answer.
 *
 * @throws Refusal `upstream_unreachable`, `upstream_broken` or `upstream_timeout`
 */
export async function askUpstream(
  through: Dispatcher,
  { body, headers, signal }: QueryAsk,
): Promise<QueryAnswer> {
  try {
    const answer = await through.request({ path: "/query", method: "POST", body, headers, signal });
    return { status: answer.statusCode, body: await readAnswer(answer.body) };
  } catch (error) {
    throw error instanceof Error ? asRefusal(error) : error;
  }
}
