import type { IncomingMessage, ServerResponse } from "node:http";
import { isDeepStrictEqual } from "node:util";
import { allEntries, listLocalGroups } from "../../../core/access/groups.ts";
import { decideWholeDatabase } from "../../../core/access/policy.ts";
import type { Decision } from "../../../core/access/rights.ts";
import { runCooperatively } from "../../../core/base/cooperative-scheduling.ts";
import { memoize, memoizeByObject } from "../../../core/base/memoize.ts";
import { FairQueue } from "../../../core/base/queues.ts";
import { Refusal, type RefusalCode } from "../../../core/base/refusal.ts";
import { hashId } from "../../../core/base/sealed-bytes.ts";
import { foldHeader } from "../../../core/config/kinds.ts";
import type { Configuration } from "../../../core/config/schema.ts";
import { commonHeaders } from "../../../core/http/answer.ts";
import { type Exchange, queryOrigin } from "../../../core/http/exchange.ts";
import type { Gateway } from "../../../core/http/gateway.ts";
import { countCall, requireAllowed } from "../../../core/http/query.ts";
import { accountOf } from "../../../core/identity/revocations.ts";
import { isObject, parseUnrounded, writeDigits } from "../../../core/json/exact.ts";
import { requireOneReading } from "../../../core/json/one-reading.ts";
import {
  AnswerStream,
  type BodyFilter,
  ClientAnswer,
  type OnComplete,
  type ResponseHandling,
} from "../../../core/upstream/answer-stream.ts";
import { withSlot } from "../../../core/upstream/database.ts";
import {
  fieldIn,
  fieldLines,
  gatewayHeaders,
  type Identity,
  privateHeaders,
  proxyHeaders,
  withoutFields,
} from "../../../core/upstream/headers.ts";
import type { AnswerHead } from "../../../core/upstream/http1/answer-reader.ts";
import { type Connection, ConnectionPool } from "../../../core/upstream/http1/connection.ts";
import { hasBroken } from "../../../core/upstream/target.ts";
import { principalOf } from "../authenticate.ts";
import {
  answeringRefusals,
  checkHeaders,
  checkMirroredArgument,
  type Era,
  type McpMessage,
  McpRefused,
  plainNameIn,
  readKnownMembers,
  readMessage,
  requireCallRate,
  requireMethod,
} from "../message.ts";
import { mayUse } from "../rights.ts";
import {
  assignTasks,
  MAX_STREAMS_PER_USER,
  requireOwnTasks,
  type SessionRegister,
  type StreamRegister,
  sessionLimits,
  taskKey,
} from "./sessions.ts";

export type ToolRule = Configuration["mcp"]["tools"][number];

function denied(message: McpMessage, code: string): McpRefused {
  const text = `Denied: you may not call this tool (${code})`;
  return new McpRefused("denied", text, { status: 200, code, id: message.id, data: { code } });
}

async function ruleDatabase(rule: ToolRule, message: McpMessage): Promise<string> {
  if (rule.database !== undefined) return rule.database;
  const { database_argument: key = "" } = rule;
  const { arguments: args, id } = message;
  const members = await runCooperatively(readKnownMembers(args, [key], id));
  const database = plainNameIn(members.get(key));
  if (database !== undefined) return database;
  const problem = `Invalid params: the argument ${key} is not a database name`;
  throw new McpRefused("invalidParams", problem, { status: 200, id });
}

interface AuthorizedMessage {
  readonly message: McpMessage | undefined;
  readonly era: Era;
  readonly sessionId: string | undefined;
  readonly identity: Identity;
  /** Of sessions and tasks. */
  readonly owner: string;
  /** A digest of the caller's rights now. Undefined if streams are never resumed. */
  readonly rights: (() => string) | undefined;
}

function findRule({ configuration }: Gateway, tool: string | undefined): ToolRule | undefined {
  return configuration.mcp.tools.find(({ name }) => name === tool);
}

function mayUseBy(gateway: Gateway, exchange: Exchange) {
  return ({ permission, database }: ToolRule) => mayUse(gateway, exchange, permission, database);
}

const allowed: Decision = { allowed: true, reason: "allowed", role: undefined, entry: undefined };

/** Decides on one call, records it for the audit, and has its answer cut once it is denied. */
function decide(gateway: Gateway, exchange: Exchange, rule: ToolRule, database: string): Decision {
  const { permission } = rule;
  const { verdict } = exchange;
  const { subject } = principalOf(exchange);
  const decideNow = () => {
    const { access, configuration } = gateway;
    if (!configuration.auth.enabled) return allowed;
    const origin = queryOrigin(exchange);
    return decideWholeDatabase(access.snapshot, subject, permission, database, origin);
  };
  const decision = decideNow();
  const { role, entry, boundary } = decision;
  const judged = { operation: permission, database, tables: [], role, entry, boundary };
  verdict.record([judged], 1, gateway.access.version);
  if (decision.allowed) verdict.allow();
  else verdict.deny(decision.reason, 403);
  const { tools } = gateway.configuration.mcp;
  verdict.checkWhileOpen(() => {
    const { tools: now } = gateway.configuration.mcp;
    const isRuled = now === tools || now.some((other) => isDeepStrictEqual(other, rule));
    if (!isRuled) throw new Refusal("no_grant");
    requireAllowed(decideNow());
  });
  return decision;
}

function concernsTasks({ method, taskIds = [] }: McpMessage): boolean {
  return method.startsWith("tasks/") || taskIds.length > 0;
}

async function identify(
  gateway: Gateway,
  exchange: Exchange,
  message: McpMessage | undefined,
): Promise<Identity> {
  const principal = principalOf(exchange);
  const { username } = principal.subject;
  // Tasks belong to tool calls, so a caller who may call no tool is denied, also while it waits.
  if (message !== undefined && concernsTasks(message)) {
    const mayCall = () => gateway.configuration.mcp.tools.some(mayUseBy(gateway, exchange));
    if (!mayCall()) throw denied(message, "no_grant");
    exchange.verdict.checkWhileOpen(() => {
      if (!mayCall()) throw new Refusal("no_grant");
    });
  }
  if (message?.method !== "tools/call") return { username, roles: [], databases: [] };
  await requireCallRate(message, countCall(gateway, exchange));
  // The policy may have changed while the steps above waited.
  const rule = findRule(gateway, message.name);
  if (rule === undefined) throw denied(message, "tool_without_policy");
  const database = await ruleDatabase(rule, message);
  const decision = decide(gateway, exchange, rule, database);
  if (!decision.allowed) throw denied(message, decision.reason);
  const { database_argument: argument } = rule;
  if (argument !== undefined)
    checkMirroredArgument(exchange.request.headers, message, argument, database);
  principal.noteCall?.(message.name ?? "");
  return { username, roles: [decision.role ?? ""], databases: [database] };
}

const writtenRecord = memoizeByObject((record: object) => JSON.stringify(record, writeDigits));

/** Everything by which the caller's calls are judged. */
function digestRights(gateway: Gateway, exchange: Exchange, owner: string): string {
  const { snapshot } = gateway.access;
  const { subject, client, scopes } = principalOf(exchange);
  const now = Date.now();
  const entries = allEntries(snapshot, subject).filter(({ expires = now + 1 }) => expires > now);
  const records = [...entries, gateway.configuration.mcp.tools, snapshot.boundaries];
  const caller = [owner, subject, client, [...scopes], listLocalGroups(snapshot, subject.username)];
  return hashId([JSON.stringify(caller), ...records.map(writtenRecord)].join());
}

/** Key of the rights that the caller has had in a session since its start. */
const rightsKey = (sessionId: string) => `${sessionId}\n`;

/**
 * A stream that is resumed may have the response to any call of its session, which was judged by
 * earlier rights. @throws McpRefused `sessionNotFound`
 */
async function requireSameRights(
  sessions: SessionRegister,
  { request, verdict }: Exchange,
  { sessionId, rights }: AuthorizedMessage,
): Promise<void> {
  if (sessionId === undefined || rights === undefined) return;
  const now = rights();
  const isSame = await sessions.use(rightsKey(sessionId), now);
  if (!isSame) sessions.end(rightsKey(sessionId));
  if (request.headers["last-event-id"] === undefined) return;
  const problem = "Session not found: your rights have changed since it began";
  if (!isSame) throw new McpRefused("sessionNotFound", problem, { status: 404 });
  verdict.checkWhileOpen(() => {
    if (rights() !== now) throw new Refusal("no_grant");
  });
}

/** @throws McpRefused, or Refusal `insufficient_scope` */
async function authorizeRequest(
  gateway: Gateway,
  sessions: SessionRegister,
  exchange: Exchange,
  body: Buffer | undefined,
): Promise<AuthorizedMessage> {
  const { headers } = exchange.request;
  const principal = principalOf(exchange);
  const message = body === undefined ? undefined : await readMessage(body);
  const era = message === undefined ? "handshake" : checkHeaders(headers, message);
  const { "mcp-session-id": id } = headers;
  // Revisions without sessions ignore the header.
  const sessionId = era === "stateless" || typeof id !== "string" ? undefined : id;
  const owner = accountOf(gateway.revocations, principal.subject.username);
  if (sessionId !== undefined && !(await sessions.use(sessionId, owner))) {
    const options = { status: 404, id: message?.kind === "request" ? message.id : undefined };
    throw new McpRefused("sessionNotFound", "Session not found", options);
  }
  if (sessionId === undefined && headers["last-event-id"] !== undefined) {
    throw new McpRefused("invalidRequest", "Invalid request: Last-Event-ID without Mcp-Session-Id");
  }
  if (message !== undefined) requireMethod(message, principal, era);
  const identity = await identify(gateway, exchange, message);
  if (message !== undefined) await requireOwnTasks(sessions, message, owner);
  const mayResume = gateway.configuration.mcp.forward_last_event_id;
  const rights = mayResume ? () => digestRights(gateway, exchange, owner) : undefined;
  const judged = { message, era, sessionId, identity, owner, rights };
  await requireSameRights(sessions, exchange, judged);
  return judged;
}

/** True if the response may contain a list. Servers resend missed ones on a GET stream. */
function mayList({ method }: IncomingMessage, { message }: AuthorizedMessage): boolean {
  if (message === undefined) return method === "GET";
  return message.method === "tools/list" || message.method === "tasks/list";
}

/** True if the response stays open and only reports changes. */
function isSubscription({ method }: IncomingMessage, { message }: AuthorizedMessage): boolean {
  return message === undefined ? method === "GET" : message.method === "subscriptions/listen";
}

/** Headers that were checked against the body or the caller. */
const checkedHeaders: ReadonlySet<string> = new Set([
  "mcp-protocol-version",
  "mcp-method",
  "mcp-name",
  "mcp-session-id",
  "last-event-id",
  "content-type",
  "content-encoding",
]);

/** True for headers that the gateway sets itself or has judged, in any spelling. */
const isSetByGateway = memoize(
  (name) => name === "host" || checkedHeaders.has(foldHeader(name)),
  256,
);

/**
 * Judged headers are forwarded exactly as they were judged, even if the client listed them in
 * `Connection`. Other spellings, which a server may fold to the same name, are dropped.
 */
function forwardedHeaders(
  { configuration, headers: policy }: Gateway,
  exchange: Exchange,
  { sessionId, identity, rights }: AuthorizedMessage,
  body: Buffer | undefined,
): Record<string, string | string[]> {
  const { auth, mcp } = configuration;
  // Credentials of the client and of the database are never forwarded.
  const { authorization: value } = mcp;
  const credential = value === undefined ? undefined : { header: "authorization", value };
  const own = { ...policy, forwardAuthorization: false, credential };
  const { request, peer } = exchange;
  const headers = proxyHeaders(request.headers, own, peer.isTrusted, isSetByGateway);
  for (const name of checkedHeaders) {
    const value = request.headers[name];
    if (value !== undefined) headers[name] = value;
  }
  if (sessionId === undefined) delete headers["mcp-session-id"];
  if (rights === undefined) delete headers["last-event-id"];
  // Responses may need filtering, so they must not be compressed.
  headers["accept-encoding"] = "identity";
  if (body !== undefined) {
    // A parameter, such as a charset, could change how the server reads the message.
    headers["content-type"] = "application/json";
    headers["content-length"] = String(body.length);
  }
  // While authentication is off, the gateway vouches for no identity.
  const known = auth.enabled ? identity : undefined;
  return Object.assign(headers, gatewayHeaders(exchange, known));
}

const LARGEST_MESSAGE_BYTES = 16 * 1024 * 1024;
const nothing = Buffer.alloc(0);

/** Members of a result that are filtered, with the member that identifies an element. */
const filteredLists = Object.entries({ tools: "name", tasks: "taskId" });

type IsVisible = (list: string, name: string) => Promise<boolean>;

/** Members of a 2026-07-28 result, which must state its cache lifetime. */
const cacheMembers = ["resultType", "ttlMs", "cacheScope"];

/**
 * Filters a list of tools or tasks, and forbids caching it, because grants may change at any time
 * (MCP 2026-07-28, Caching). Undefined if there is nothing to filter.
 */
async function filterMessage(bytes: Buffer, isVisible: IsVisible): Promise<string | undefined> {
  requireOneReading(bytes);
  const message = parseUnrounded(bytes.toString("utf8"));
  if (!isObject(message)) throw new Error("not a message");
  const { result } = message;
  if (!isObject(result)) return undefined;
  const found = filteredLists.filter(([list]) => Object.hasOwn(result, list));
  if (found.length === 0) return undefined;
  const filtered: Record<string, unknown> = { ...result };
  for (const [list, identifier] of found) {
    const elements = result[list];
    if (!Array.isArray(elements)) throw new Error("not a list");
    const visible: unknown[] = [];
    for (const element of elements) {
      const name = isObject(element) ? element[identifier] : undefined;
      if (typeof name === "string" && (await isVisible(list, name))) visible.push(element);
    }
    filtered[list] = visible;
  }
  if (cacheMembers.some((key) => Object.hasOwn(result, key))) {
    Object.assign(filtered, { ttlMs: 0, cacheScope: "private" });
  }
  return JSON.stringify({ ...message, result: filtered });
}

function messageFilter(isVisible: IsVisible): BodyFilter {
  const pieces: Buffer[] = [];
  let length = 0;
  return {
    pass(piece) {
      length += piece.length;
      if (length > LARGEST_MESSAGE_BYTES) throw new Error("too long");
      pieces.push(Buffer.from(piece));
      return nothing;
    },
    async end() {
      const message = Buffer.concat(pieces);
      if (message.length === 0) return nothing;
      return Buffer.from((await filterMessage(message, isVisible)) ?? message);
    },
  };
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
async function filterEvent(event: string, isVisible: IsVisible): Promise<string> {
  const lines = event.split(endOfLine);
  const data = lines.flatMap((line) => {
    const match = dataLine.exec(line);
    return match === null ? [] : [match.groups?.text ?? ""];
  });
  const text = data.join("\n");
  if (text.trim() === "") return event;
  const filtered = await filterMessage(Buffer.from(text, "latin1"), isVisible);
  if (filtered === undefined) return event;
  const others = lines.filter((line) => line !== "" && !dataLine.test(line));
  const written = Buffer.from(filtered).toString("latin1");
  return [...others, `data: ${written}`, "", ""].join("\n");
}

function eventFilter(isVisible: IsVisible): BodyFilter {
  // One instance per stream, because `lastIndex` is its state.
  const ends = new RegExp(endOfEvent);
  let rest = "";
  let isAtStart = true;
  return {
    async pass(piece) {
      ends.lastIndex = Math.max(0, rest.length - END_LENGTH);
      rest += piece.toString("latin1");
      let start = 0;
      let passed = "";
      for (let end = ends.exec(rest); end !== null; end = ends.exec(rest)) {
        const next = end.index + end[0].length;
        const event = rest.slice(start, next);
        const text = isAtStart ? event.replace(byteOrderMark, "") : event;
        isAtStart = false;
        passed += await filterEvent(text, isVisible);
        start = next;
      }
      rest = rest.slice(start);
      if (rest.length > LARGEST_MESSAGE_BYTES) throw new Error("too long");
      return Buffer.from(passed, "latin1");
    },
    /** Drops an incomplete event, as clients would. */
    end: () => nothing,
  };
}

const droppedHeaders: ReadonlySet<string> = new Set([
  // The client's cookies are not forwarded either, and challenges are the gateway's own.
  "set-cookie",
  "www-authenticate",
  "mcp-session-id",
]);

/** Headers that describe the unfiltered bytes or allow caching. */
const bodyHeaders: ReadonlySet<string> = new Set([
  "content-length",
  "etag",
  "digest",
  "content-digest",
  "repr-digest",
  "content-md5",
  "accept-ranges",
  "last-modified",
  "cache-control",
  "expires",
  "age",
]);

/** Lenient, because clients look for the type anywhere in the header. */
function isEventStream(answer: AnswerHead): boolean {
  return /text\/event-stream/i.test(fieldIn(answer.headers, "content-type") ?? "");
}

function isSuccess({ status }: AnswerHead): boolean {
  return status >= 200 && status < 300;
}

/** @throws Refusal `upstream_broken` if it cannot be filtered */
function filterFor(answer: AnswerHead, isVisible: IsVisible): BodyFilter | undefined {
  const encoding = fieldIn(answer.headers, "content-encoding") ?? "identity";
  if (encoding !== "identity") {
    throw new Refusal("upstream_broken", { detail: `a list in the coding ${encoding}` });
  }
  if (isEventStream(answer)) return eventFilter(isVisible);
  const type = fieldIn(answer.headers, "content-type") ?? "";
  if (/json/i.test(type)) return messageFilter(isVisible);
  if (!isSuccess(answer)) return undefined;
  throw new Refusal("upstream_broken", { detail: "neither JSON nor an event stream" });
}

/** Refuses redirects, which bypass the gateway, and 401, which is about its own credential. */
function receive(
  answer: AnswerHead,
  isVisible: IsVisible | undefined,
  sessionId: string | undefined,
  taskFilter: BodyFilter | undefined,
): ResponseHandling {
  const { status } = answer;
  if (status === 401 || (status >= 300 && status < 400)) {
    throw new Refusal("upstream_broken", { detail: `the MCP server answered ${status}` });
  }
  const isStream = isEventStream(answer);
  const filter = isVisible && filterFor(answer, isVisible);
  let rawHeaders = withoutFields(answer.headers, (name) => droppedHeaders.has(name));
  if (sessionId !== undefined) rawHeaders = [...rawHeaders, "Mcp-Session-Id", sessionId];
  if (isStream && fieldIn(answer.headers, "x-accel-buffering") === undefined) {
    rawHeaders = [...rawHeaders, "X-Accel-Buffering", "no"];
  }
  const own = privateHeaders(rawHeaders);
  if (filter === undefined) return { rawHeaders: own, filter: taskFilter, isStream };
  const kept = withoutFields(own, (name) => bodyHeaders.has(name));
  return { rawHeaders: [...kept, "Cache-Control", "no-store"], filter, isStream };
}

/** Returns the session id for the client. @throws Error if it belongs to another user */
async function noteSession(
  sessions: SessionRegister,
  method: string,
  answer: AnswerHead,
  { message, era, sessionId, owner, rights }: AuthorizedMessage,
): Promise<string | undefined> {
  if (era === "stateless") return undefined;
  const hasEnded = answer.status === 404 || (isSuccess(answer) && method === "DELETE");
  if (sessionId !== undefined && hasEnded) sessions.end(sessionId);
  const answeredId = fieldIn(answer.headers, "mcp-session-id");
  if (answeredId === undefined) return undefined;
  if (message?.method !== "initialize" || !isSuccess(answer)) {
    return answeredId === sessionId ? answeredId : undefined;
  }
  const isOwn = await sessions.open(answeredId, owner);
  if (!isOwn) throw new Error("the MCP server has given one session to two users");
  if (rights !== undefined) await sessions.open(rightsKey(answeredId), rights());
  return answeredId;
}

function keepSessionInUse(
  sessions: SessionRegister,
  { sessionId, owner, rights }: AuthorizedMessage,
  response: ServerResponse,
  intervalMs: number,
): void {
  // A closed response emits no other `close`, so nothing would stop the timer.
  if (sessionId === undefined || response.closed) return;
  const touch = async () => {
    await sessions.use(sessionId, owner);
    if (rights !== undefined) await sessions.use(rightsKey(sessionId), rights());
  };
  // After a failure, the next interval tries again.
  const timer = setInterval(() => void touch().catch(() => {}), intervalMs);
  response.once("close", () => clearInterval(timer));
}

/** Instead of those about the database. */
const failureMessages: Partial<Record<RefusalCode, string>> = {
  upstream_unreachable: "The MCP server does not respond",
  upstream_broken: "The MCP server sent no valid response",
  upstream_timeout: "The MCP server took too long to answer",
  upstream_overloaded: "Too many of your calls are open: try again shortly",
};

function aboutServer(failure: unknown): unknown {
  if (!(failure instanceof Refusal)) return failure;
  const { code, detail, cause, retryAfter } = failure;
  const message = failureMessages[code];
  return message === undefined
    ? failure
    : new Refusal(code, { message, detail, cause, retryAfter });
}

interface McpProxyOptions {
  readonly sessions: SessionRegister;
  readonly streams: StreamRegister;
  /** While a stream is open, its session counts as used again at this interval. */
  readonly sessionTouchMs?: number;
}

/** Proxy for an external MCP server, over a pool of connections. It connects on first use. */
export function createMcpProxy(
  gateway: Gateway,
  target: string,
  { sessions, streams, sessionTouchMs = sessionLimits.idleMs / 4 }: McpProxyOptions,
) {
  const url = new URL(target);
  const { connect_timeout: connect, response_timeout: response } = gateway.configuration.upstream;
  /** Until the head of a response, and between two parts of one that is no stream. */
  const responseTimeoutMs = response * 1000;
  const pool = new ConnectionPool(
    { origin: url.origin, socketPath: undefined },
    { connectTimeoutMs: connect * 1000, responseTimeoutMs },
  );
  const calls = new FairQueue({
    slots: Number.POSITIVE_INFINITY,
    maxPerKey: MAX_STREAMS_PER_USER,
    timeoutMs: responseTimeoutMs,
  });

  /** @param mayRepeat true if the request may be sent again when its connection breaks early */
  function send(
    connection: Connection,
    head: string,
    body: Buffer,
    sink: ClientAnswer,
    mayRepeat: boolean,
  ): void {
    const complete: OnComplete = (failure, hasReceived) => {
      if (failure === undefined || sink.isGone) return;
      // This happens when the upstream closes an idle connection.
      const isRepeated = mayRepeat && !hasReceived && hasBroken(failure);
      if (isRepeated) send(pool.open(), head, body, sink, false);
      else sink.fail(failure);
    };
    const stream = new AnswerStream(sink, connection, responseTimeoutMs, complete);
    connection.send(head, body, stream);
  }

  async function countStream(
    username: string,
    response: ServerResponse,
    judged: AuthorizedMessage,
  ) {
    const release = await streams.take(username);
    if (release === undefined) {
      const problem = `Too many streams: close one of your ${MAX_STREAMS_PER_USER} open streams`;
      throw new McpRefused("tooManyStreams", problem, { status: 429, id: judged.message?.id });
    }
    if (response.closed) release();
    else response.once("close", release);
  }

  async function handle(exchange: Exchange, body: Buffer | undefined): Promise<void> {
    const { request, response } = exchange;
    const { username } = principalOf(exchange).subject;
    const judged = await authorizeRequest(gateway, sessions, exchange, body);
    keepSessionInUse(sessions, judged, response, sessionTouchMs);
    if (isSubscription(request, judged)) await countStream(username, response, judged);
    const isVisible: IsVisible = async (list, name) => {
      if (list === "tasks") return sessions.use(taskKey(name), judged.owner);
      const rule = findRule(gateway, name);
      return rule !== undefined && mayUseBy(gateway, exchange)(rule);
    };
    const filter = mayList(request, judged) ? isVisible : undefined;
    const headers = forwardedHeaders(gateway, exchange, judged, body);
    const { method = "" } = request;
    exchange.forwardUpstream({ method, headers, target: url.origin });
    const isCall = judged.message?.method === "tools/call";
    const taskFilter = isCall ? assignTasks(sessions, judged.owner) : undefined;
    if (response.destroyed) return;
    const { promise, resolve, reject } = Promise.withResolvers<void>();
    response.once("close", resolve);
    const sink = new ClientAnswer({
      response,
      addedHeaders: commonHeaders(exchange),
      receive: async (answer) => {
        const sessionId = await noteSession(sessions, method, answer, judged);
        return receive(answer, filter, sessionId, taskFilter);
      },
      fail: (failure) => reject(aboutServer(failure)),
    });
    const line = `${method} ${url.pathname}${url.search} HTTP/1.1`;
    const head = `${line}\r\nhost: ${url.host}\r\nconnection: keep-alive\r\n${fieldLines(headers)}\r\n`;
    // When its connection breaks, a call may have run.
    const run = () => send(pool.take(), head, body ?? nothing, sink, !isCall);
    if (judged.message?.kind !== "request" || isSubscription(request, judged)) run();
    else {
      const { requireStillAllowed: authorizeAgain } = exchange.verdict;
      withSlot(calls, { user: username, authorizeAgain }, sink, () => {
        response.once("close", () => calls.release({ key: username }));
        run();
      });
    }
    await promise;
  }

  return { handle: answeringRefusals(handle), close: (): void => pool.close() };
}
