import { Transform } from "node:stream";
import { promisify } from "node:util";
import { gunzip } from "node:zlib";
import { runCooperatively } from "../../core/base/cooperative-scheduling.ts";
import { Refusal } from "../../core/base/refusal.ts";
import { bodyTooLarge, readBody, requireLength } from "../../core/http/body.ts";
import { type Exchange, hasBody } from "../../core/http/exchange.ts";
import type { Gateway } from "../../core/http/gateway.ts";
import { parseAccepted, parseExactInSteps } from "../../core/json/exact.ts";
import { quoteName } from "../../core/json/fault.ts";
import { requireUtf8 } from "../../core/json/lexical.ts";
import {
  LineReader,
  requireOneReading,
  requireOneReadingInSteps,
} from "../../core/json/one-reading.ts";
import {
  isObject,
  type Json,
  type JsonObject,
  type PresetEndpoint,
  type PresetRequest,
} from "./preset.ts";

/**
 * Parses JSON that every parser reads alike: UTF-8, no key twice, at most 64 levels deep.
 *
 * @throws JsonFault
 */
export function readJson(bytes: Buffer): Json {
  requireOneReading(bytes);
  return parseAccepted(bytes.toString());
}

/** Longer bodies are read in steps, so that other requests are served in between. */
const SHORT_BYTES = 64 * 1024;

async function readAnyJson(bytes: Buffer): Promise<Json> {
  if (bytes.length <= SHORT_BYTES) return readJson(bytes);
  await runCooperatively(requireOneReadingInSteps(bytes));
  return runCooperatively(parseExactInSteps(bytes.toString(), Number, false));
}

export function unknownMember(name: string, where: string, allowed: Iterable<string>): Refusal {
  const list = [...allowed].join(", ") || "none";
  const message = `Unknown member ${quoteName(name)} in ${where}; allowed: ${list}`;
  return new Refusal("unknown_member", { message });
}

/**
 * @param where the object is, for the message: `the action`
 * @throws Refusal `unknown_member` for a member that is not listed
 */
export function requireMembers(
  object: JsonObject,
  allowed: ReadonlySet<string>,
  where = "the body",
): void {
  for (const name in object) {
    if (!allowed.has(name)) throw unknownMember(name, where, allowed);
  }
}

/** @throws Refusal `bad_request` */
export function requireObject(value: Json | undefined, noun = "the body"): JsonObject {
  if (isObject(value)) return value;
  throw badRequest(`${noun} must be an object`);
}

/** For an answer of the upstream that cannot be understood. */
export function brokenAnswer(detail: string): Refusal {
  return new Refusal("upstream_broken", { detail });
}

export function badRequest(problem: string): Refusal {
  return new Refusal("bad_request", { message: `Bad request: ${problem}` });
}

const NEWLINE = 0x0a;

/** The lines of NDJSON, read one after the other. */
export class Lines {
  readonly bytes: Buffer;
  start = 0;
  /** Exclusive, without the newline. */
  end = -1;
  readonly #reader: LineReader;

  /** @throws Refusal `bad_request` unless each line ends with a newline, or JsonFault */
  constructor(bytes: Buffer) {
    if (bytes.length > 0 && bytes.at(-1) !== NEWLINE) {
      throw badRequest("the last line does not end with a newline");
    }
    requireUtf8(bytes);
    this.bytes = bytes;
    this.#reader = new LineReader(bytes);
  }

  get isAtEnd(): boolean {
    return this.end + 1 >= this.bytes.length;
  }

  /** True if nothing but empty lines follows. */
  get isBlank(): boolean {
    let at = this.end + 1;
    while (this.bytes[at] === NEWLINE) at++;
    return at === this.bytes.length;
  }

  /**
   * Goes to the next line, and checks it as `readJson` does.
   *
   * @returns true if it differs in scalars only from the last line that this reader read
   * @throws JsonFault
   */
  check(reader = this.#reader): boolean {
    this.start = this.end + 1;
    const end = reader.readSimilar(this.start);
    this.end = end === -1 ? reader.read(this.start) : end;
    return end !== -1;
  }

  /** Goes to the next line, and reads it. @throws JsonFault */
  read(): Json {
    this.check();
    return parseAccepted(this.text(this.start, this.end));
  }

  text(start: number, end: number): string {
    return this.bytes.toString("utf8", start, end);
  }
}

const inflate = promisify(gunzip);

/** @throws Refusal `body_too_large`, or `bad_request` for what is not gzip */
async function inflated(gateway: Gateway, exchange: Exchange, bytes: Buffer): Promise<Buffer> {
  const { max_body_bytes: limit } = gateway.configuration.server;
  // The length of the result is unknown until it exists.
  gateway.budget.take(exchange, limit);
  try {
    return await inflate(bytes, { maxOutputLength: limit });
  } catch (error) {
    if (error instanceof RangeError) throw bodyTooLarge(limit);
    throw badRequest("the body is not valid gzip");
  }
}

/** @throws Refusal `unsupported_media_type` */
function requireType(exchange: Exchange, types: readonly string[]): void {
  const written = exchange.request.headers["content-type"] ?? "";
  const [type = "", ...parameters] = written.toLowerCase().split(";");
  const isListed = types.includes("*") || types.includes(type.trim());
  const isUtf8 = parameters.every(
    (one) => !one.includes("charset") || /^\s*charset\s*=\s*"?utf-?8"?\s*$/.test(one),
  );
  if (isListed && (isUtf8 || types.includes("*"))) return;
  const message = `Content-Type must be ${types.join(" or ")} in UTF-8 here`;
  throw new Refusal("unsupported_media_type", { message });
}

/** @throws Refusal `unsupported_media_type` for a coding other than gzip */
function isCompressed({ request: { headers } }: Exchange): boolean {
  const coding = headers["content-encoding"]?.trim().toLowerCase() ?? "identity";
  if (coding === "gzip") return true;
  if (coding === "identity") return false;
  const message = "Content-Encoding must be gzip, or absent";
  throw new Refusal("unsupported_media_type", { message });
}

/** Bodies up to this length are sent from memory, which is faster and can be repeated. */
const SMALL_UPLOAD_BYTES = 1024 * 1024;

export type ReadBody = Pick<PresetRequest, "bytes" | "json" | "members">;

const nothing: ReadBody = { bytes: Buffer.alloc(0), json: undefined, members: {} };

/** The only form that is read, so that no two parsers find different boundaries. */
const related = /^multipart\/related; *boundary=("?)([A-Za-z0-9'_-]{1,70})\1$/i;
const jsonPart = /^\r\ncontent-type: *application\/json\r\n\r\n/i;
const otherField = "(?:content-(?:type|length|encoding):[^\\r\\n]*\\r\\n)*";
const fileField = 'content-disposition: *attachment; *filename="[^"\\r\\n]+"\\r\\n';
const filePart = new RegExp(`^\\r\\n${otherField}${fileField}${otherField}\\r\\n`, "i");

/**
 * The JSON that `multipart/related` begins with. Each further part must be a file, since servers
 * that read parts by name would take another one for JSON.
 *
 * @throws Refusal `bad_request`
 */
function firstPart(bytes: Buffer, contentType: string): Buffer {
  const [, , boundary] = related.exec(contentType) ?? [];
  if (boundary === undefined)
    throw badRequest("Content-Type must be multipart/related; boundary=…");
  // Latin-1 has one character for each byte.
  const [start, ...parts] = `\r\n${bytes.toString("latin1")}`.split(`\r\n--${boundary}`);
  const end = parts.pop()?.trimEnd();
  const [first = "", ...files] = parts;
  const areFiles = files.every((part) => filePart.test(part));
  if (start !== "" || end !== "--" || !jsonPart.test(first) || !areFiles) {
    throw badRequest("the body must be a part in JSON and then files with a filename");
  }
  return Buffer.from(first.replace(jsonPart, ""), "latin1");
}

async function parse(endpoint: PresetEndpoint, bytes: Buffer, type = ""): Promise<ReadBody> {
  const { body: kind, members } = endpoint;
  if (kind !== "json" && kind !== "optional json") return { ...nothing, bytes };
  const isPart = /^multipart\//i.test(type);
  const json = await readAnyJson(isPart ? firstPart(bytes, type) : bytes);
  if (members === undefined) return { ...nothing, bytes, json };
  const object = requireObject(json);
  requireMembers(object, members);
  return { bytes, json, members: object };
}

/**
 * Reads the body of a request as its endpoint says.
 *
 * @returns undefined for a body that is to be passed on in a stream
 * @throws Refusal or JsonFault
 */
export async function readBodyFor(
  gateway: Gateway,
  exchange: Exchange,
  endpoint: PresetEndpoint,
): Promise<ReadBody | undefined> {
  const { body: kind = "none", types = ["application/json"] } = endpoint;
  const { headers } = exchange.request;
  if (!hasBody(headers)) {
    if (kind === "json" || kind === "ndjson") throw badRequest("a body is missing");
    return nothing;
  }
  if (kind === "none") throw badRequest("no body is allowed here");
  requireType(exchange, types);
  const { server, upstream } = gateway.configuration;
  const isGzip = isCompressed(exchange);
  if (kind === "stream" && !isGzip) {
    requireLength(exchange.request, upstream.max_upload_bytes);
    const length = Number(headers["content-length"] ?? Number.POSITIVE_INFINITY);
    if (length > Math.min(SMALL_UPLOAD_BYTES, server.max_body_bytes)) return undefined;
  }
  const sent = await readBody(exchange, server.max_body_bytes, gateway.budget);
  if (sent.length === 0) throw badRequest("the body is empty");
  const bytes = isGzip ? await inflated(gateway, exchange, sent) : sent;
  return parse(endpoint, bytes, headers["content-type"]);
}

/** Passes a body on, up to `upstream.max_upload_bytes`. */
export function limitedBody({ configuration }: Gateway, { request }: Exchange): Transform {
  const limit = configuration.upstream.max_upload_bytes;
  let length = 0;
  const limiter = new Transform({
    transform(piece: Buffer, _encoding, done) {
      length += piece.length;
      if (length > limit) done(bodyTooLarge(limit));
      else done(null, piece);
    },
  });
  request.on("error", (error) => limiter.destroy(error));
  return request.pipe(limiter);
}
