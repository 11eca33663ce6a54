import { setTimeout as delay } from "node:timers/promises";
import type { Logger } from "pino";
import { ClientError } from "../core/base/client-error.ts";
import { FairQueue } from "../core/base/queues.ts";
import { Refusal } from "../core/base/refusal.ts";
import { isPlainName } from "../core/query/names.ts";
import { isOperationName } from "../core/query/operations.ts";
import { isReadOnly, type Query } from "../core/query/query.ts";
import { QueryRefused } from "../core/query/refusal.ts";
import type { AnswerSink } from "../core/upstream/answer-stream.ts";
import {
  type Database,
  type DatabaseQuery,
  type DatabaseTarget,
  type ForwardedRequest,
  type QueryMetrics,
  type RunReport,
  type SchemaQuery,
  withSlot,
} from "../core/upstream/database.ts";
import { callerLimits, EngineRefusal } from "./refusal.ts";
import { type Answer, answerBytes, type RowFormat, type RowStream } from "./spool.ts";
import type { Store } from "./store.ts";

const mediaTypes: Readonly<Record<RowFormat, string>> = {
  json: "application/json",
  ndjson: "application/x-ndjson",
  csv: "text/csv; charset=utf-8; header=present",
};
const formats = ["json", "ndjson", "csv"] as const;

interface Range {
  readonly type: string;
  readonly quality: number;
}

/**
 * The format that an `Accept` header prefers (RFC 9110, section 12.5.1), or else JSON. Among equal
 * preferences, a named type wins over a wildcard.
 */
export function preferredFormat(accept: string | undefined): RowFormat {
  if (accept === undefined || accept === "*/*" || accept === "application/json") return "json";
  const ranges = accept.split(",").flatMap(parseRange);
  const rated = formats.map((format) => ({ format, ...bestMatch(mediaTypes[format], ranges) }));
  const [best] = rated
    .filter(({ quality }) => quality > 0)
    .sort((one, other) => other.quality - one.quality || other.precision - one.precision);
  return best?.format ?? "json";
}

/** The most specific range for a media type; its precision is 2 for a named type. */
function bestMatch(mediaType: string, ranges: readonly Range[]) {
  const [type = ""] = mediaType.split(";");
  const patterns = ["*/*", `${type.slice(0, type.indexOf("/"))}/*`, type];
  for (const precision of [2, 1, 0]) {
    const range = ranges.find((one) => one.type === patterns[precision]);
    if (range !== undefined) return { quality: range.quality, precision };
  }
  return { quality: 0, precision: 0 };
}

/** Empty for an invalid media range, and for one with a parameter that no offer has. */
function parseRange(text: string): Range[] {
  const [type = "", ...parameters] = text.split(";").map((part) => part.trim().toLowerCase());
  let quality = 1;
  for (const parameter of parameters) {
    const weight = /^q=(0(?:\.\d{0,3})?|1(?:\.0{0,3})?)$/.exec(parameter)?.[1];
    if (weight !== undefined) quality = Number(weight);
    else if (!/^(charset="?utf-8"?|header=present)$/.test(parameter)) return [];
  }
  return [{ type, quality }];
}

/** Queries that wait for a slot, as a multiple of the slots. */
const WAITING_PER_SLOT = 16;
const CLOSE_TIMEOUT_MS = 10_000;

interface EngineDatabaseOptions {
  /** The database's URL without its password. */
  readonly name: string;
  readonly connections: number;
  /** How long a query waits for a slot. */
  readonly waitTimeoutMs: number;
  readonly metrics: QueryMetrics;
  readonly log: Logger;
}

export class EngineDatabase implements Database, DatabaseTarget {
  readonly isEngine = true;
  readonly isLive = true;
  readonly name: string;
  readonly targets: readonly DatabaseTarget[] = [this];
  readonly #store: Store;
  readonly #options: EngineDatabaseOptions;
  readonly #limiter: FairQueue;
  #running = 0;
  #onIdle: (() => void) | undefined;

  constructor(store: Store, options: EngineDatabaseOptions) {
    const { name, connections: slots, waitTimeoutMs: timeoutMs, metrics } = options;
    this.name = name;
    this.#store = store;
    this.#options = options;
    const { waits } = metrics;
    const maxWaiting = slots * WAITING_PER_SLOT;
    this.#limiter = new FairQueue({ slots, maxWaiting, timeoutMs, waits });
    metrics.include(this.#limiter);
  }

  get readsBytes(): boolean {
    return this.#store.readsBytes;
  }

  get busy(): number {
    return this.#limiter.busy;
  }

  get waiting(): number {
    return this.#limiter.waiting;
  }

  run(query: DatabaseQuery | SchemaQuery, sink: AnswerSink): void {
    withSlot(this.#limiter, query, sink, () => {
      this.#running++;
      void this.#answer(query, sink)
        .catch((error: unknown) => sink.fail(error))
        .finally(() => {
          this.#limiter.release({ key: query.user });
          if (--this.#running === 0) this.#onIdle?.();
        });
    });
  }

  async #answer(query: DatabaseQuery | SchemaQuery, sink: AnswerSink): Promise<void> {
    const client = new AbortController();
    if (sink.isGone) return;
    // Named first, as in `AnswerStream`.
    const onGone = () => client.abort();
    sink.whenGone = onGone;
    const startedAt = performance.now();
    try {
      if ("schema" in query) {
        const [database, table] = query.schema;
        if (!query.schema.every(isPlainName)) throw new Refusal("schema_not_found");
        await this.#send(await this.#store.readSchema({ database, table }, client), sink, client);
        return;
      }
      const { accept, query: asked, report } = query;
      requireKnown(asked);
      const format = !asked.batch && isReadOnly(asked) ? preferredFormat(accept) : "json";
      if (format === "json") {
        const answer = await this.#store.execute(query, client);
        report?.(answer.counts);
        this.#options.metrics.answers.add((performance.now() - startedAt) / 1000);
        await this.#send(answer, sink, client);
        return;
      }
      const stream = new StreamedAnswer(sink, format, client);
      report?.(stream);
      await this.#store.stream(query, stream, client);
      stream.end();
    } catch (error) {
      this.#fail(query, sink, error);
    } finally {
      sink.whenGone = undefined;
      sink.whenDrained = undefined;
    }
  }

  async #send(answer: Answer, sink: AnswerSink, client: AbortController): Promise<void> {
    const { byteLength, body } = answer;
    if (typeof body !== "number" && byteLength <= CHUNK_LENGTH) {
      if (sink.isGone) return;
      sink.begin(200, { rawHeaders: jsonHead(byteLength) });
      sink.end(Buffer.from(body.buffer, body.byteOffset, byteLength));
      return;
    }
    const output = new Drain(sink, client.signal);
    let sent = 0;
    // Leaving the loop closes the file of a long answer.
    for await (const piece of answerBytes(answer)) {
      if (sink.isGone) return;
      if (sent === 0) sink.begin(200, { rawHeaders: jsonHead(byteLength) });
      sent += piece.length;
      output.write(piece);
      await output.backlog;
    }
    if (!sink.isGone) sink.end(nothing);
  }

  /**
   * Answers a refusal with its own message, and any other error with a 500 whose cause only goes to
   * the log. Errors for callers who may not see the whole schema name only what the query names.
   */
  #fail(query: DatabaseQuery | SchemaQuery, sink: AnswerSink, error: unknown): void {
    if (sink.isGone) return;
    const { log, metrics } = this.#options;
    if (sink.hasBegun) {
      log.error({ err: error }, "an answer was cut off");
      metrics.onCut();
      sink.cut();
      return;
    }
    if (error instanceof Refusal) {
      sink.fail(error);
      return;
    }
    const { requestId } = query;
    const answer = (status: number, code: string, message: string, members = {}): void => {
      const fields = { status: "error", message, code, ...members, request_id: requestId };
      const body = Buffer.from(JSON.stringify(fields));
      const head = jsonHead(body.length);
      sink.begin(status, { rawHeaders: mayRepeat.has(code) ? [...head, ...retrySoon] : head });
      sink.end(body);
    };
    if (error instanceof EngineRefusal) {
      const { status, code, message, plain, members, incident, constraint } = error;
      if (incident !== undefined)
        log.error({ ...incident, requestId, answer: plain }, "a query failed");
      else if (code === "storage_failed") log.error({ code }, message);
      if ("report" in query && callerLimits.has(code)) query.report?.({ denied: code });
      const isHidden = "seesSchema" in query && !query.seesSchema;
      const shown = isHidden && constraint ? { kind: constraint.kind } : constraint;
      const more = shown === undefined ? members : { ...members, constraint: shown };
      answer(status, code, isHidden ? plain : message, more);
    } else if (error instanceof ClientError) answer(error.status, error.code, error.message);
    else {
      log.error({ err: error, requestId }, "a query failed");
      answer(500, "internal_error", "The engine failed to run this query");
    }
  }

  forward(_request: ForwardedRequest, sink: AnswerSink): void {
    sink.fail(new Refusal("not_found"));
  }

  /** The engine has no other routes. */
  async forwardStream(): Promise<void> {
    throw new Refusal("not_found");
  }

  isUp(): Promise<boolean> {
    return this.#store.isUp();
  }

  /** Waits for the queries that are running, then closes the store. Gives up after ten seconds. */
  async close(): Promise<void> {
    await Promise.race([this.#finish(), delay(CLOSE_TIMEOUT_MS, undefined, { ref: false })]);
  }

  async #finish(): Promise<void> {
    if (this.#running > 0) await new Promise<void>((resolve) => (this.#onIdle = resolve));
    await this.#store.close();
  }
}

const nothing = Buffer.alloc(0);

/** @throws QueryRefused for what only a foreign upstream understands (`[query]`) */
function requireKnown({ accesses }: Query): void {
  for (const { operation, node, start } of accesses) {
    const place = { path: operation, offset: start };
    if (!isOperationName(operation)) {
      throw new QueryRefused("unknown_operation", "the engine does not know this operation", place);
    }
    if (node.hasExtraFields) {
      throw new QueryRefused("unknown_field", "the engine knows no additional fields", place);
    }
  }
}

/** Nothing was carried out, and soon it may be. */
const mayRepeat: ReadonlySet<string> = new Set(["busy", "database_unavailable"]);
const retrySoon = ["Retry-After", "1"];

function jsonHead(length: number): readonly string[] {
  return ["Content-Type", "application/json", "Content-Length", String(length)];
}

/** Writes to a sink with back-pressure. */
class Drain {
  /** Set while the client lags; resolves when it has caught up or left. */
  backlog: Promise<void> | undefined;
  readonly #sink: AnswerSink;
  readonly #client: AbortSignal;

  constructor(sink: AnswerSink, client: AbortSignal) {
    this.#sink = sink;
    this.#client = client;
  }

  write(bytes: Buffer): void {
    if (this.#sink.isGone || this.#sink.write(bytes)) return;
    this.backlog ??= this.#untilDrained();
  }

  async #untilDrained(): Promise<void> {
    const sink = this.#sink;
    const { promise, resolve } = Promise.withResolvers<void>();
    sink.whenDrained = resolve;
    this.#client.addEventListener("abort", () => resolve(), { once: true });
    await promise;
    sink.whenDrained = undefined;
    this.backlog = undefined;
  }
}

/** Characters gathered before a chunk is sent, approximately. */
const CHUNK_LENGTH = 64 * 1024;

/**
 * An answer sent while its rows are still being read. Headers are sent with the first row, so that
 * earlier failures have an error status. Later failures cut the connection.
 */
class StreamedAnswer implements RowStream, RunReport {
  readonly format: "csv" | "ndjson";
  readonly #sink: AnswerSink;
  readonly #client: AbortController;
  readonly #output: Drain;
  #pending = "";
  #soon: NodeJS.Immediate | undefined;
  #hasProgressed = false;
  #rows = 0;

  constructor(sink: AnswerSink, format: "csv" | "ndjson", client: AbortController) {
    this.format = format;
    this.#sink = sink;
    this.#client = client;
    this.#output = new Drain(sink, client.signal);
  }

  get hasBegun(): boolean {
    return this.#sink.hasBegun;
  }

  get backlog(): Promise<void> | undefined {
    return this.#output.backlog;
  }

  hasProgressed(): boolean {
    const hasProgressed = this.#hasProgressed || this.backlog !== undefined;
    this.#hasProgressed = false;
    return hasProgressed;
  }

  reset(): void {
    this.#take();
    this.#rows = 0;
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

  /** Until now. */
  get rows(): number {
    return this.#rows;
  }

  countRows(count: number): void {
    this.#rows += count;
  }

  end(): void {
    const last = Buffer.from(this.#take());
    if (this.#sink.isGone) return;
    if (!this.hasBegun) {
      const type = ["Content-Type", mediaTypes[this.format]];
      this.#sink.begin(200, { rawHeaders: [...type, "Content-Length", String(last.length)] });
    }
    this.#sink.end(last);
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

  /** May be called by the event loop, so that an error ends the query instead of being thrown. */
  #send(bytes: Buffer): void {
    if (this.#sink.isGone) return;
    try {
      if (!this.hasBegun) {
        this.#sink.begin(200, { rawHeaders: ["Content-Type", mediaTypes[this.format]] });
      }
      this.#hasProgressed = true;
      this.#output.write(bytes);
    } catch (error) {
      this.#client.abort(error);
    }
  }
}
