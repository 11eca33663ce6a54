import type { IncomingMessage, ServerResponse } from "node:http";
import { parseExactly, requireOneReading } from "../../json/document.ts";
import type { UpwardRequest } from "../../observe/tracing.ts";
import { Refusal } from "../../refusal.ts";
import type { BodyFilter, Reception } from "../../upstream/answer-stream.ts";
import type { HeaderPolicy } from "../../upstream/headers.ts";
import { type AnswerHead, fieldIn } from "../../upstream/http1/answer-reader.ts";
import { PooledProxy } from "../../upstream/pooled-proxy.ts";
import type { Principal } from "../authenticate.ts";
import { type Answering, McpRefused, sendMcpRefusal } from "../message.ts";
import {
  isSubscription,
  type Judged,
  judgeRequest,
  mayList,
  OpenStreams,
  type Origin,
  type Rights,
  type StreamRegister,
  ToolPolicy,
  type ToolRule,
  upwardHeaders,
} from "./judged-request.ts";
import { type SessionRegister, Sessions, TaskNotes, taskKey, usualLimits } from "./sessions.ts";

/** Bytes of one message that are buffered for filtering. */
const LARGEST_MESSAGE_BYTES = 16 * 1024 * 1024;
const nothing = Buffer.alloc(0);

/** Filtered lists: the member of the result, and the member that identifies an element. */
const lists = { tools: "name", tasks: "taskId" } as const;
const listKeys = ["tools", "tasks"] as const;

/** True if the element with this name may be shown. */
type ShowElement = Readonly<
  Record<keyof typeof lists, (name: string) => boolean | Promise<boolean>>
>;

type Members = Readonly<Record<string, unknown>>;

function isObject(value: unknown): value is Members {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

/** @throws Error if it is no list */
async function filterList(list: unknown, member: string, show: ShowElement[keyof ShowElement]) {
  if (!Array.isArray(list)) throw new Error("not a list");
  const shown: unknown[] = [];
  for (const element of list) {
    const name: unknown = isObject(element) ? element[member] : undefined;
    if (typeof name !== "string") continue;
    if (await show(name)) shown.push(element);
  }
  return shown;
}

/**
 * Members of a 2026-07-28 result, which must state its cache lifetime. Earlier revisions have none
 * of them.
 */
const cacheable = ["resultType", "ttlMs", "cacheScope"];

/**
 * Filters a JSON-RPC message if it is a list of tools or tasks. Such a list belongs to one caller,
 * whose grants may change at any time, so caches must not keep it (MCP 2026-07-28, Caching).
 *
 * @returns undefined if there is nothing to filter
 * @throws Error for a message that two parsers could read differently
 */
async function filterMessage(bytes: Buffer, show: ShowElement): Promise<string | undefined> {
  requireOneReading(bytes);
  const message = parseExactly(bytes.toString("utf8"));
  if (!isObject(message)) throw new Error("not a message");
  const { result } = message;
  const keys = isObject(result) ? listKeys.filter((key) => Object.hasOwn(result, key)) : [];
  if (!isObject(result) || keys.length === 0) return undefined;
  const filtered: Record<string, unknown> = { ...result };
  for (const key of keys) filtered[key] = await filterList(result[key], lists[key], show[key]);
  if (cacheable.some((key) => Object.hasOwn(result, key))) {
    Object.assign(filtered, { ttlMs: 0, cacheScope: "private" });
  }
  return JSON.stringify({ ...message, result: filtered });
}

/** Filters a body that is one JSON message. Throws rather than pass an invalid one. */
class MessageFilter implements BodyFilter {
  readonly #show: ShowElement;
  readonly #pieces: Buffer[] = [];
  #length = 0;

  constructor(show: ShowElement) {
    this.#show = show;
  }

  pass(piece: Buffer): Buffer {
    this.#length += piece.length;
    if (this.#length > LARGEST_MESSAGE_BYTES) throw new Error("too long");
    this.#pieces.push(Buffer.from(piece));
    return nothing;
  }

  async end(): Promise<Buffer> {
    const message = Buffer.concat(this.#pieces);
    if (message.length === 0) return nothing;
    const filtered = await filterMessage(message, this.#show);
    return filtered === undefined ? message : Buffer.from(filtered);
  }
}

/** Empty line that ends an event (WHATWG HTML, server-sent events). */
const endOfEvent = /(?:\r\n|\r(?!\n)|\n){2}/g;
const END_LENGTH = 4;
const endOfLine = /\r\n|\r|\n/;
/** A data line. One space after the colon is not part of the data. */
const dataLine = /^data(?:: ?(?<text>.*))?$/s;
/** Byte order mark in latin1. It is text anywhere but at the start of the stream. */
const byteOrderMark = /^\xef\xbb\xbf/;

/** @param event the event's bytes as latin1 */
async function filterEvent(event: string, show: ShowElement): Promise<string> {
  const lines = event.split(endOfLine);
  const data = lines.flatMap((line) => {
    const match = dataLine.exec(line);
    return match === null ? [] : [match.groups?.text ?? ""];
  });
  const text = data.join("\n");
  if (text.trim() === "") return event;
  const filtered = await filterMessage(Buffer.from(text, "latin1"), show);
  if (filtered === undefined) return event;
  const others = lines.filter((line) => line !== "" && !dataLine.test(line));
  const written = Buffer.from(filtered).toString("latin1");
  return [...others, `data: ${written}`, "", ""].join("\n");
}

/** Filters an event stream, each event as soon as it is complete. */
class EventFilter implements BodyFilter {
  readonly #show: ShowElement;
  /** A separate instance per stream: `lastIndex` must survive other streams' searches. */
  readonly #ends = new RegExp(endOfEvent);
  #rest = "";
  #isAtStart = true;

  constructor(show: ShowElement) {
    this.#show = show;
  }

  async pass(piece: Buffer): Promise<Buffer> {
    const searched = this.#rest.length;
    this.#rest += piece.toString("latin1");
    const events = await this.#takeWholeEvents(searched);
    if (this.#rest.length > LARGEST_MESSAGE_BYTES) throw new Error("too long");
    return Buffer.from(events, "latin1");
  }

  /** Drops an incomplete event, as clients would. */
  end(): Buffer {
    return nothing;
  }

  async #takeWholeEvents(searched: number): Promise<string> {
    const ends = this.#ends;
    ends.lastIndex = Math.max(0, searched - END_LENGTH);
    let start = 0;
    let passed = "";
    for (let end = ends.exec(this.#rest); end !== null; end = ends.exec(this.#rest)) {
      const next = end.index + end[0].length;
      const event = this.#rest.slice(start, next);
      const text = this.#isAtStart ? event.replace(byteOrderMark, "") : event;
      this.#isAtStart = false;
      passed += await filterEvent(text, this.#show);
      start = next;
    }
    this.#rest = this.#rest.slice(start);
    return passed;
  }
}

const dropped: ReadonlySet<string> = new Set([
  // Cookies are not forwarded upstream either. Challenges are the gateway's own.
  "set-cookie",
  "www-authenticate",
  "mcp-session-id",
]);

/** Headers that describe the unfiltered bytes or allow caching. */
const ofWholeBody: ReadonlySet<string> = new Set([
  ...["content-length", "etag", "digest", "content-digest", "repr-digest", "content-md5"],
  ...["accept-ranges", "last-modified", "cache-control", "expires", "age"],
]);

function without(raw: readonly string[], names: ReadonlySet<string>): string[] {
  return raw.filter((_, at) => !names.has((raw[at - (at % 2)] ?? "").toLowerCase()));
}

/** Lenient, because clients look for the type anywhere in the header. */
function isEventStream(answer: AnswerHead): boolean {
  return /text\/event-stream/i.test(fieldIn(answer.headers, "content-type") ?? "");
}

function isSuccess({ status }: AnswerHead): boolean {
  return status >= 200 && status < 300;
}

/**
 * The filter for a response that may hold a list of tools or tasks.
 *
 * @throws Refusal `upstream_broken` if that cannot be determined
 */
function filterFor(answer: AnswerHead, show: ShowElement): BodyFilter | undefined {
  const encoding = fieldIn(answer.headers, "content-encoding") ?? "identity";
  if (encoding !== "identity") {
    throw new Refusal("upstream_broken", { detail: `a list in the coding ${encoding}` });
  }
  if (isEventStream(answer)) return new EventFilter(show);
  const type = fieldIn(answer.headers, "content-type") ?? "";
  if (/json/i.test(type)) return new MessageFilter(show);
  if (!isSuccess(answer)) return undefined;
  throw new Refusal("upstream_broken", { detail: "neither JSON nor an event stream" });
}

/**
 * Receives a response of the upstream server.
 *
 * @throws Refusal `upstream_broken` for a redirect, which would lead the client past the gateway,
 * or a 401, which concerns a credential that is not the client's
 */
function receive(
  answer: AnswerHead,
  show: ShowElement | undefined,
  sessionId: string | undefined,
  notes: BodyFilter | undefined,
): Reception {
  const { status } = answer;
  if (status === 401 || (status >= 300 && status < 400)) {
    throw new Refusal("upstream_broken", { detail: `the MCP server answered ${status}` });
  }
  const isStream = isEventStream(answer);
  const filter = show === undefined ? undefined : filterFor(answer, show);
  let rawHeaders = without(answer.headers, dropped);
  if (sessionId !== undefined) rawHeaders = [...rawHeaders, "Mcp-Session-Id", sessionId];
  if (isStream && fieldIn(answer.headers, "x-accel-buffering") === undefined) {
    rawHeaders = [...rawHeaders, "X-Accel-Buffering", "no"];
  }
  if (filter === undefined) return { rawHeaders, filter: notes, isStream };
  const ofFiltered = [...without(rawHeaders, ofWholeBody), "Cache-Control", "no-store"];
  return { rawHeaders: ofFiltered, filter, isStream };
}

/**
 * Assigns a session that begins to the caller, and forgets one that has ended.
 *
 * @returns the session id for the client
 * @throws Error for a new session that belongs to another user
 */
async function noteSession(
  sessions: SessionRegister,
  method: string,
  answer: AnswerHead,
  { message, era, sessionId, identity }: Judged,
): Promise<string | undefined> {
  if (era === "stateless") return undefined;
  const isOver = answer.status === 404 || (isSuccess(answer) && method === "DELETE");
  if (sessionId !== undefined && isOver) sessions.end(sessionId);
  const told = fieldIn(answer.headers, "mcp-session-id");
  if (told === undefined) return undefined;
  if (message?.method !== "initialize" || !isSuccess(answer)) {
    return told === sessionId ? told : undefined;
  }
  if (await sessions.open(told, identity.username)) return told;
  throw new Error("the MCP server has given one session to two users");
}

/** Marks a session as used every `interval` milliseconds while a response in it is open. */
function keepSession(
  sessions: SessionRegister,
  { sessionId, identity: { username } }: Judged,
  response: ServerResponse,
  interval: number,
): void {
  if (sessionId === undefined) return;
  // A failure is ignored: the next interval tries again.
  const touch = async () => sessions.use(sessionId, username);
  const timer = setInterval(() => void touch().catch(() => {}), interval);
  response.once("close", () => clearInterval(timer));
}

interface McpExchange extends Answering, Origin {
  readonly rights: Rights;
  /**
   * Called before the request is forwarded upstream. With tracing, the upstream headers name its
   * span.
   */
  goUp?(upward: UpwardRequest): void;
}

interface McpProxyOptions {
  readonly target: string;
  readonly policy: () => readonly ToolRule[];
  /** The client's and the database's credentials are never forwarded, whatever this says. */
  readonly headers: HeaderPolicy;
  /** The server's own credential for the `Authorization` header. */
  readonly authorization?: string | undefined;
  /** Milliseconds. */
  readonly connectTimeout: number;
  /**
   * Milliseconds to the response head, and between two parts of a response that is not an event
   * stream.
   */
  readonly responseTimeout: number;
  readonly sessions?: SessionRegister;
  /** Milliseconds between two session uses that an open stream counts as. */
  readonly sessionTouch?: number;
  readonly streams?: StreamRegister;
}

/** Proxy for a foreign MCP server. Connects on first use. */
export function createMcpProxy(options: McpProxyOptions) {
  const { sessions = new Sessions(), streams = new OpenStreams() } = options;
  const { connectTimeout, responseTimeout, sessionTouch = usualLimits.idle / 4 } = options;
  const url = new URL(options.target);
  const { authorization } = options;
  const headerPolicy = { ...options.headers, forwardAuthorization: false, authorization };
  const policy = new ToolPolicy(options.policy);
  const proxy = new PooledProxy(url, connectTimeout, responseTimeout);

  return {
    /**
     * Judges one request and forwards it upstream. Resolves when the response is sent or aborted.
     *
     * @param body undefined for GET and DELETE
     * @throws Refusal `insufficient_scope`, `upstream_unreachable`, `upstream_broken` or
     * `upstream_timeout`, as long as no part of a response was sent
     */
    async handle(
      request: IncomingMessage,
      response: ServerResponse,
      body: Buffer | undefined,
      principal: Principal,
      exchange: McpExchange,
    ): Promise<void> {
      const { rights } = exchange;
      let judged: Judged;
      try {
        judged = await judgeRequest({ policy, rights, sessions }, request, body, principal);
        keepSession(sessions, judged, response, sessionTouch);
        if (isSubscription(request, judged)) {
          await streams.open(principal.subject.username, response, judged.message?.id);
        }
      } catch (error) {
        if (!(error instanceof McpRefused)) throw error;
        sendMcpRefusal(response, error, exchange);
        return;
      }
      const show = mayList(request, judged)
        ? {
            tools: (name: string) => policy.mayCall(rights, name),
            tasks: (id: string) => sessions.use(taskKey(id), principal.subject.username),
          }
        : undefined;
      const headers = upwardHeaders({ request, judged, body }, headerPolicy, exchange);
      const { method = "" } = request;
      exchange.goUp?.({ method, headers, target: url.origin });
      const isCall = judged.message?.method === "tools/call";
      const { username } = judged.identity;
      const notes = isCall ? new TaskNotes(sessions, username) : undefined;
      await proxy.forward({
        ...{ method, headers, body, response, answerHeaders: exchange.answerHeaders() },
        // The outcome of a call is unknown after its connection breaks.
        isRepeatable: !isCall,
        receive: async (answer) => {
          const sessionId = await noteSession(sessions, method, answer, judged);
          return receive(answer, show, sessionId, notes);
        },
      });
    },
    close: (): void => proxy.close(),
  };
}
