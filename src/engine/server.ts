import { createHash, timingSafeEqual } from "node:crypto";
import { createReadStream } from "node:fs";
import type { IncomingMessage, Server, ServerResponse } from "node:http";
import { pipeline } from "node:stream/promises";
import { parse } from "content-type";
import type { Logger } from "pino";
import { ClientError } from "../client-error.ts";
import { memoize } from "../memoize.ts";
import { http } from "../node-http.ts";
import { affectedHeader, deniedHeader, engineName, rowsHeader } from "../product.ts";
import { createGrammar } from "../query/grammar.ts";
import { isPlainName } from "../query/names.ts";
import { isReadOnly } from "../query/query.ts";
import { scan } from "../query/scan.ts";
import { limitsHeader, narrowedHeader } from "./limits.ts";
import { callerLimits, EngineRefusal } from "./refusal.ts";
import type { Answer, RowForm, RowStream } from "./spool.ts";
import type { SchemaPath, Store } from "./store.ts";

const loopbackHost = /^(localhost|127\.0\.0\.1|\[::1\])(:\d{1,5})?$/i;

/** Stops pages that make a browser resolve their own name to 127.0.0.1 (DNS rebinding). */
function requireLoopbackHost(request: IncomingMessage): void {
  if (loopbackHost.test(request.headers.host ?? "")) return;
  throw new EngineRefusal(
    "host_not_allowed",
    "The Host header must be localhost, 127.0.0.1 or [::1]",
  );
}

function requireAuthorization(request: IncomingMessage, authorization: string): void {
  // The comparison needs equal lengths.
  const digest = (text: string) => createHash("sha256").update(text).digest();
  if (timingSafeEqual(digest(request.headers.authorization ?? ""), digest(authorization))) return;
  throw new EngineRefusal("unauthorized", "The Authorization header does not match the engine's");
}

const isJson = memoize((contentType) => parse(contentType).type === "application/json");

/**
 * For this content type, browsers ask before they send a cross-origin request. The engine never
 * agrees.
 */
function requireJson(request: IncomingMessage): void {
  const encoding = request.headers["content-encoding"] ?? "identity";
  if (isJson(request.headers["content-type"] ?? "") && encoding === "identity") return;
  throw new EngineRefusal(
    "unsupported_media_type",
    "Send the query as application/json without a content encoding",
  );
}

export const BODY_LIMIT = 64 * 1024 * 1024;

const grammar = createGrammar({ extraFields: [], operations: {} });

function readBody(request: IncomingMessage): Promise<Buffer> {
  return new Promise((resolve, reject) => {
    const chunks: Buffer[] = [];
    let length = 0;
    // The connection stays open, so that the answer can still be sent.
    const refuse = (): void =>
      reject(new EngineRefusal("body_too_large", `The body exceeds ${BODY_LIMIT} bytes`));
    if (Number(request.headers["content-length"] ?? 0) > BODY_LIMIT) return refuse();
    request.on("data", (chunk: Buffer) => {
      length += chunk.length;
      if (length > BODY_LIMIT) refuse();
      else chunks.push(chunk);
    });
    request.once("end", () => resolve(Buffer.concat(chunks)));
    request.once("error", reject);
  });
}

function readSchemaPath(path: string): SchemaPath {
  const names = path.split("/").slice(2);
  if (names.length > 2 || !names.every(isPlainName)) {
    throw new EngineRefusal("not_found", "Unknown route");
  }
  const [database, table] = names;
  return { database, table };
}

const mediaTypes: Readonly<Record<RowForm, string>> = {
  json: "application/json",
  ndjson: "application/x-ndjson",
  csv: "text/csv; charset=utf-8; header=present",
};
const forms = ["json", "ndjson", "csv"] as const;

interface Range {
  readonly type: string;
  readonly quality: number;
}

/**
 * The form that an `Accept` header prefers (RFC 9110, section 12.5.1), or else JSON. Among equal
 * preferences, a named type wins over a wildcard.
 */
export function preferredForm(accept: string | undefined): RowForm {
  const ranges = (accept ?? "*/*").split(",").flatMap(rangeOf);
  const rated = forms.map((form) => ({ form, ...matchOf(mediaTypes[form], ranges) }));
  const [best] = rated
    .filter(({ quality }) => quality > 0)
    .sort((one, other) => other.quality - one.quality || other.precision - one.precision);
  return best?.form ?? "json";
}

/** The most specific range for a media type; its precision is 2 for a named type. */
function matchOf(mediaType: string, ranges: readonly Range[]) {
  const [type = ""] = mediaType.split(";");
  const patterns = ["*/*", `${type.slice(0, type.indexOf("/"))}/*`, type];
  for (const precision of [2, 1, 0]) {
    const range = ranges.find((one) => one.type === patterns[precision]);
    if (range !== undefined) return { quality: range.quality, precision };
  }
  return { quality: 0, precision: 0 };
}

/** Empty for an invalid media range, and for one with a parameter that no offer has. */
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

/** Longer than clients keep idle connections, so that the clients close them first. */
const KEEP_ALIVE_TIMEOUT_MS = 75_000;

/** Row filters are sent in a header and may hold long lists. */
const LARGEST_HEAD_BYTES = 1024 * 1024;

const routes: Record<string, string> = { "/query": "POST", "/healthz": "GET", "/schema": "GET" };

interface ServerOptions {
  readonly store: Store;
  readonly log: Logger;
  readonly loopbackHostOnly: boolean;
  readonly authorization: string | undefined;
}

/** `drain` refuses new requests, waits for those in flight, then closes every connection. */
export function createEngineServer(options: ServerOptions): {
  readonly server: Server;
  drain(): Promise<void>;
} {
  let pending = 0;
  let closing = false;
  let onIdle: (() => void) | undefined;
  const end = (): void => {
    pending -= 1;
    if (pending === 0) onIdle?.();
  };

  const server = http.createServer(
    { keepAliveTimeout: KEEP_ALIVE_TIMEOUT_MS, maxHeaderSize: LARGEST_HEAD_BYTES },
    (request, response) => {
      if (closing) {
        response.setHeader("Connection", "close");
        answerError(response, new EngineRefusal("closing", "The engine is closing"), options.log);
        return;
      }
      // Two parts: the work itself, and the client who reads the answer.
      pending += 2;
      const client = new AbortController();
      response.once("close", () => {
        if (!response.writableFinished) client.abort();
        end();
      });
      answer(request, response, options, client)
        .catch((error: unknown) => {
          const isPlain = request.headers[narrowedHeader] !== undefined;
          answerError(response, error, options.log, isPlain);
        })
        .then(end);
    },
  );

  const drain = async (): Promise<void> => {
    closing = true;
    if (pending > 0) await new Promise<void>((resolve) => (onIdle = resolve));
    await new Promise<void>((resolve) => {
      server.close(() => resolve());
      server.closeAllConnections();
    });
  };
  return { server, drain };
}

async function answer(
  request: IncomingMessage,
  response: ServerResponse,
  { store, loopbackHostOnly, authorization }: ServerOptions,
  client: AbortController,
): Promise<void> {
  if (loopbackHostOnly) requireLoopbackHost(request);
  if (authorization !== undefined) requireAuthorization(request, authorization);
  const path = route(request, response);
  if (path === "/healthz") {
    response.setHeader("Server", engineName);
    await store.check();
    return sendJson(response, 200, { status: "success" });
  }
  if (path === "/schema") {
    const names = readSchemaPath(request.url ?? "");
    return await send(response, await store.readSchema(names, client));
  }
  requireJson(request);
  const header = request.headers[limitsHeader];
  // Loaded on demand: its library takes 12 MB and 40 ms, and few engines need it.
  const limits =
    header === undefined ? [] : (await import("./limits-header.ts")).readLimits(header);
  const body = await readBody(request);
  const query = scan(body, grammar);
  const queryRequest = { body, query, limits };
  const form = !query.batch && isReadOnly(query) ? preferredForm(request.headers.accept) : "json";
  if (form === "json") return await send(response, await store.execute(queryRequest, client));
  const stream = new StreamedAnswer(response, form);
  await store.stream(queryRequest, stream, client);
  stream.end();
}

function route(request: IncomingMessage, response: ServerResponse): string {
  const url = request.url ?? "";
  const path = /^\/schema(\/|$)/.test(url) ? "/schema" : url;
  const method = Object.hasOwn(routes, path) ? routes[path] : undefined;
  if (method === undefined) throw new EngineRefusal("not_found", "Unknown route");
  if (request.method === method) return path;
  response.setHeader("Allow", method);
  throw new EngineRefusal("method_not_allowed", `This route allows only ${method}`);
}

/** Shorter answers are sent in one write with their headers: two writes cost twice as much. */
const SHORT_ANSWER_BYTES = 4096;

async function send(response: ServerResponse, { counts, byteLength, body }: Answer): Promise<void> {
  const { affected, rows } = counts;
  response.writeHead(200, {
    "Content-Type": "application/json",
    "Content-Length": byteLength,
    // For the gateway's audit.
    ...(affected === undefined ? {} : { [affectedHeader]: affected }),
    ...(rows === undefined ? {} : { [rowsHeader]: rows }),
  });
  if (typeof body === "number") {
    endIfStalled(response);
    return await pipeline(createReadStream("", { fd: body, start: 0 }), response);
  }
  const bytes = Buffer.from(body.buffer, body.byteOffset, body.byteLength);
  if (bytes.length > SHORT_ANSWER_BYTES) response.end(bytes);
  else response.end(bytes.toString("latin1"), "latin1");
  if (response.writableLength > 0) endIfStalled(response);
}

function endIfStalled(response: ServerResponse): void {
  response.setTimeout(STALLED_CLIENT_TIMEOUT_MS, () => response.destroy());
}

/**
 * Sends a refusal with its own message, and any other error as a 500 whose cause only goes to the
 * log. With `isPlain`, messages name only those parts of the schema that the query names.
 */
function answerError(response: ServerResponse, error: unknown, log: Logger, isPlain = false): void {
  if (response.destroyed) return;
  if (response.headersSent) {
    log.error({ err: error }, "an answer was cut off");
    response.destroy();
    return;
  }
  const sendError = (status: number, code: string, message: string, members = {}): void => {
    if (callerLimits.has(code)) response.setHeader(deniedHeader, code);
    if (code === "body_too_large") response.setHeader("Connection", "close");
    sendJson(response, status, { status: "error", message, code, ...members });
  };
  if (error instanceof EngineRefusal) {
    const { status, code, message, plain, members, incident } = error;
    if (incident !== undefined) log.error({ ...incident, answer: plain }, "a query failed");
    else if (code === "storage_failed") log.error({ code }, message);
    sendError(status, code, isPlain ? plain : message, members);
  } else if (error instanceof ClientError) {
    sendError(error.status, error.code, error.message);
  } else {
    log.error({ err: error }, "a query failed");
    sendError(500, "internal_error", "The engine failed to run this query");
  }
}

function sendJson(response: ServerResponse, status: number, body: object): void {
  const bytes = Buffer.from(JSON.stringify(body));
  response.writeHead(status, {
    "Content-Type": "application/json",
    "Content-Length": bytes.length,
  });
  response.end(bytes);
}

/** Characters gathered before a chunk is sent, approximately. */
const CHUNK_LENGTH = 64 * 1024;

/** The database waits for a client that has more unread bytes. */
const MAX_BACKLOG_BYTES = 256 * 1024;

/** A client that accepts none of its answer for this long is disconnected. */
const STALLED_CLIENT_TIMEOUT_MS = 60_000;

/**
 * An answer sent while its rows are still being read. Headers are sent with the first row, so that
 * earlier failures have an error status. Later failures cut the connection.
 */
class StreamedAnswer implements RowStream {
  readonly form: RowForm;
  readonly #response: ServerResponse;
  #pending = "";
  #soon: NodeJS.Immediate | undefined;
  #backlog: Promise<void> | undefined;
  #hasProgressed = false;

  constructor(response: ServerResponse, form: RowForm) {
    this.#response = response;
    this.form = form;
  }

  get hasBegun(): boolean {
    return this.#response.headersSent;
  }

  get backlog(): Promise<void> | undefined {
    return this.#backlog;
  }

  hasProgressed(): boolean {
    const hasProgressed = this.#hasProgressed || this.#backlog !== undefined;
    this.#hasProgressed = false;
    return hasProgressed;
  }

  reset(): void {
    this.#take();
  }

  write(text: string): void {
    this.#pending += text;
    if (this.#pending.length >= CHUNK_LENGTH) this.#flush();
    else this.#soon ??= setImmediate(() => this.#flush());
  }

  writeBytes(bytes: Buffer): void {
    this.#flush();
    this.#send(bytes);
  }

  /** The headers are already sent, so the count cannot be reported. */
  countRows(): void {}

  end(): void {
    const last = Buffer.from(this.#take());
    if (!this.hasBegun) {
      const length = { "Content-Length": last.length };
      this.#response.writeHead(200, { "Content-Type": mediaTypes[this.form], ...length });
    }
    this.#response.end(last);
  }

  #take(): string {
    clearImmediate(this.#soon);
    this.#soon = undefined;
    const text = this.#pending;
    this.#pending = "";
    return text;
  }

  #flush(): void {
    const text = this.#take();
    if (text !== "") this.#send(Buffer.from(text));
  }

  #send(bytes: Buffer): void {
    const response = this.#response;
    if (response.destroyed) return;
    if (!this.hasBegun) response.writeHead(200, { "Content-Type": mediaTypes[this.form] });
    this.#hasProgressed = true;
    const isAccepted = response.write(bytes);
    if (!isAccepted && response.writableLength > MAX_BACKLOG_BYTES)
      this.#backlog ??= this.#untilDrained();
  }

  async #untilDrained(): Promise<void> {
    const response = this.#response;
    response.setTimeout(STALLED_CLIENT_TIMEOUT_MS, () => response.destroy());
    const { promise, resolve } = Promise.withResolvers<void>();
    response.once("drain", resolve).once("close", resolve);
    await promise;
    response.off("drain", resolve).off("close", resolve);
    response.setTimeout(0);
    this.#backlog = undefined;
  }
}
