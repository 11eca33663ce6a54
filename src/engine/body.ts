import type { IncomingMessage } from "node:http";
import { createGrammar } from "../query/grammar.ts";
import type { Query } from "../query/query.ts";
import { scan } from "../query/scan.ts";
import { EngineRefusal } from "./refusal.ts";

/** The longest body that is read, in bytes. */
export const bodyLimit = 64 * 1024 * 1024;

/** The first room for a body, in bytes: little, since a length that is announced costs nothing. */
const firstRoom = 64 * 1024;

const grammar = createGrammar({ extraFields: [], operations: {} });

/**
 * Reads a request's body.
 *
 * Throws `EngineRefusal` `body_too_large` as soon as the body is known to pass the limit.
 */
export async function readBody(request: IncomingMessage): Promise<Buffer> {
  if (Number(request.headers["content-length"] ?? 0) > bodyLimit) throw tooLarge();
  let room: Buffer = Buffer.allocUnsafe(firstRoom);
  let length = 0;
  // Left open when this throws, the connection still carries the answer.
  for await (const chunk of request.iterator({ destroyOnReturn: false })) {
    const end = length + chunk.length;
    if (end > bodyLimit) throw tooLarge();
    if (end > room.length) room = enlarge(room, end);
    chunk.copy(room, length);
    length = end;
  }
  return room.subarray(0, length);
}

/** At least twice the room, so that a body is copied a few times however small its chunks are. */
function enlarge(room: Buffer, needed: number): Buffer {
  const larger = Buffer.allocUnsafe(Math.min(bodyLimit, Math.max(2 * room.length, needed)));
  room.copy(larger);
  return larger;
}

/** Finds what a body asks for. Throws `QueryRefused` for a body outside the grammar. */
export function scanBody(body: Buffer): Query {
  return scan(body, grammar);
}

function tooLarge(): EngineRefusal {
  return new EngineRefusal("body_too_large", `A query has at most ${bodyLimit} bytes`);
}
