import { createHash, timingSafeEqual } from "node:crypto";
import type { IncomingMessage } from "node:http";
import { parse } from "content-type";
import { memoize } from "../memoize.ts";
import { createGrammar } from "../query/grammar.ts";
import { isPlainName } from "../query/names.ts";
import type { Query } from "../query/query.ts";
import { scan } from "../query/scan.ts";
import { EngineRefusal } from "./refusal.ts";
import type { RowForm } from "./spool.ts";
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

const isJson = memoize((contentType) => parse(contentType).type === "application/json");

/**
 * Refuses a body that is not plain JSON. A browser sends this content type to another origin
 * only after asking, and the engine never answers yes.
 *
 * @throws EngineRefusal `unsupported_media_type`
 */
export function requireJson(request: IncomingMessage): void {
  const encoding = request.headers["content-encoding"] ?? "identity";
  if (isJson(request.headers["content-type"] ?? "") && encoding === "identity") return;
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

const grammar = createGrammar({ extraFields: [], operations: {} });

/**
 * Reads a request's body.
 *
 * @throws EngineRefusal `body_too_large` as soon as the body is known to pass the limit
 */
export function readBody(request: IncomingMessage): Promise<Buffer> {
  return new Promise((resolve, reject) => {
    let room: Buffer = Buffer.alloc(0);
    let length = 0;
    // Left open, the connection still carries the answer.
    const refuse = () => reject(tooLarge());
    if (Number(request.headers["content-length"] ?? 0) > BODY_LIMIT) return refuse();
    request.on("data", (chunk: Buffer) => {
      const end = length + chunk.length;
      if (end > BODY_LIMIT) return refuse();
      // Most bodies are one chunk, which is not copied.
      if (length === 0) room = chunk;
      else {
        if (end > room.length) room = enlarge(room, end);
        chunk.copy(room, length);
      }
      length = end;
    });
    request.once("end", () => resolve(room.subarray(0, length)));
    request.once("error", reject);
  });
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

/** The media types that rows are offered in; of those that are wanted alike the first is taken. */
const offers: readonly { readonly form: RowForm; readonly type: string }[] = [
  { form: "json", type: "application/json" },
  { form: "ndjson", type: "application/x-ndjson" },
  { form: "csv", type: "text/csv" },
];

/** A media range of an `Accept` header. */
interface Range {
  readonly type: string;
  /** From 0, not at all, to 1. */
  readonly quality: number;
}

/**
 * The form that an `Accept` header wants most (RFC 9110, section 12.5.1); of several that are wanted
 * alike one that is named before one that a wildcard stands for. JSON if it wants none of them.
 */
export function formOf(accept: string | undefined): RowForm {
  if (accept === undefined) return "json";
  const ranges = accept.split(",").flatMap(rangeOf);
  let best: { form: RowForm; quality: number; precision: number } | undefined;
  for (const { form, type } of offers) {
    const found = matchOf(type, ranges);
    if (found === undefined || found.quality === 0) continue;
    const isBetter =
      best === undefined ||
      found.quality > best.quality ||
      (found.quality === best.quality && found.precision > best.precision);
    if (isBetter) best = { form, ...found };
  }
  return best?.form ?? "json";
}

/** What the most precise range says of a media type. */
function matchOf(
  type: string,
  ranges: readonly Range[],
): { readonly quality: number; readonly precision: number } | undefined {
  const patterns = ["*/*", `${type.slice(0, type.indexOf("/"))}/*`, type];
  for (const precision of [2, 1, 0]) {
    const range = ranges.find((one) => one.type === patterns[precision]);
    if (range !== undefined) return { quality: range.quality, precision };
  }
  return undefined;
}

/** None for what is no media range, and for one with a parameter that no offer has. */
function rangeOf(text: string): Range[] {
  const [type = "", ...parameters] = text.split(";").map((part) => part.trim().toLowerCase());
  let quality = 1;
  for (const parameter of parameters) {
    const weight = /^q=(0(?:\.\d{0,3})?|1(?:\.0{0,3})?)$/.exec(parameter)?.[1];
    if (weight !== undefined) quality = Number(weight);
    else if (!/^(charset="?utf-8"?|header=present)$/.test(parameter)) return [];
  }
  return [{ type, quality }];
}
