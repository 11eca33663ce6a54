import { createHash, timingSafeEqual } from "node:crypto";
import type { IncomingMessage } from "node:http";
import { parse } from "content-type";
import { createGrammar } from "../query/grammar.ts";
import { isPlainName } from "../query/names.ts";
import type { Query } from "../query/query.ts";
import { scan } from "../query/scan.ts";
import { EngineRefusal } from "./refusal.ts";
import type { SchemaPlace } from "./store.ts";

/** `localhost`, `127.0.0.1` or `[::1]`, with or without a port. */
const loopbackHost = /^(localhost|127\.0\.0\.1|\[::1\])(:\d{1,5})?$/i;

/**
 * Refuses a request whose `Host` is not a loopback name. A page that makes a browser resolve its
 * own name to 127.0.0.1 (DNS rebinding) gets no further than this.
 *
 * @throws EngineRefusal `host_not_allowed`
 */
export function requireLoopbackHost(request: IncomingMessage): void {
  if (loopbackHost.test(request.headers.host ?? "")) return;
  throw new EngineRefusal("host_not_allowed", "The Host header must name the loopback interface");
}

/**
 * Refuses a request that does not carry the shared secret as its `Authorization` header.
 *
 * @throws EngineRefusal `unauthorized`
 */
export function requireAuthorization(request: IncomingMessage, authorization: string): void {
  if (timingSafeEqual(digest(request.headers.authorization ?? ""), digest(authorization))) return;
  throw new EngineRefusal("unauthorized", "The Authorization header is not the engine's");
}

/**
 * Refuses a body that is not plain JSON. A browser sends this content type to another origin
 * only after asking, and the engine never answers yes.
 *
 * @throws EngineRefusal `unsupported_media_type`
 */
export function requireJson(request: IncomingMessage): void {
  const { type } = parse(request.headers["content-type"] ?? "");
  const encoding = request.headers["content-encoding"] ?? "identity";
  if (type === "application/json" && encoding === "identity") return;
  throw new EngineRefusal(
    "unsupported_media_type",
    "A query is sent as application/json without a content encoding",
  );
}

/** Secrets of any length become digests of one length, as the comparison needs. */
function digest(text: string): Buffer {
  return createHash("sha256").update(text).digest();
}

/** The longest body that is read, in bytes. */
export const BODY_LIMIT = 64 * 1024 * 1024;

/** The first room for a body, in bytes: little, since a length that is announced costs nothing. */
const FIRST_ROOM = 64 * 1024;

const grammar = createGrammar({ extraFields: [], operations: {} });

/**
 * Reads a request's body.
 *
 * @throws EngineRefusal `body_too_large` as soon as the body is known to pass the limit
 */
export async function readBody(request: IncomingMessage): Promise<Buffer> {
  if (Number(request.headers["content-length"] ?? 0) > BODY_LIMIT) throw tooLarge();
  let room: Buffer = Buffer.allocUnsafe(FIRST_ROOM);
  let length = 0;
  // Left open when this throws, the connection still carries the answer.
  for await (const chunk of request.iterator({ destroyOnReturn: false })) {
    const end = length + chunk.length;
    if (end > BODY_LIMIT) throw tooLarge();
    if (end > room.length) room = enlarge(room, end);
    chunk.copy(room, length);
    length = end;
  }
  return room.subarray(0, length);
}

/** At least twice the room, so that a body is copied a few times however small its chunks are. */
function enlarge(room: Buffer, needed: number): Buffer {
  const larger = Buffer.allocUnsafe(Math.min(BODY_LIMIT, Math.max(2 * room.length, needed)));
  room.copy(larger);
  return larger;
}

/** Finds what a body asks for. @throws QueryRefused for a body outside the grammar */
export function scanBody(body: Buffer): Query {
  return scan(body, grammar);
}

function tooLarge(): EngineRefusal {
  return new EngineRefusal("body_too_large", `A query has at most ${BODY_LIMIT} bytes`);
}

/** The route that tells what databases, tables and columns there are. */
const root = "/schema";

/** True for `/schema` and all that lies below. */
export function isSchemaPath(path: string): boolean {
  return path === root || path.startsWith(`${root}/`);
}

/**
 * What `/schema`, `/schema/<database>` or `/schema/<database>/<table>` asks about.
 *
 * @throws EngineRefusal `not_found` for a path with more names or with other than plain ones
 */
export function readSchemaPath(path: string): SchemaPlace {
  const names = path.split("/").slice(2);
  if (names.length > 2 || !names.every(isPlainName)) {
    throw new EngineRefusal("not_found", "The engine has no such route");
  }
  const [database, table] = names;
  return { database, table };
}
