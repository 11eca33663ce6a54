import type { IncomingMessage, ServerResponse } from "node:http";
import { foldHeader } from "../../config/kinds.ts";
import { memoize } from "../../memoize.ts";
import {
  gatewayHeaders,
  type HeaderPolicy,
  type Identity,
  type Provenance,
  passedHeaders,
} from "../../upstream/headers.ts";
import type { Principal } from "../authenticate.ts";
import { McpRefused, requireMethod } from "../json-rpc.ts";
import { type McpMessage, readMessageInSlices } from "../message.ts";
import { type Era, judgeHeaders, judgeParameter } from "../protocol-headers.ts";
import type { SessionRegister } from "./sessions.ts";
import { requireOwnTask } from "./task-notes.ts";
import type { Rights, ToolPolicy } from "./tool-policy.ts";

/** A request that was judged and may go up. */
export interface Judged {
  /** Undefined for GET and DELETE. */
  readonly message: McpMessage | undefined;
  readonly era: Era;
  /** The caller's own session, if it names one. */
  readonly sessionId: string | undefined;
  /** What the server behind is told of the caller. */
  readonly identity: Identity;
}

/** What a request is judged by. */
interface Rules {
  readonly policy: ToolPolicy;
  readonly rights: Rights;
  /** Whose the sessions and the tasks are. */
  readonly sessions: SessionRegister;
}

function sessionIdOf({ headers }: IncomingMessage): string | undefined {
  const id = headers["mcp-session-id"];
  return typeof id === "string" ? id : undefined;
}

/** What the server behind is told of the caller, whose tool call or task is judged for it. */
async function identify(
  { policy, rights }: Rules,
  { headers }: IncomingMessage,
  message: McpMessage | undefined,
  principal: Principal,
): Promise<Identity> {
  const { username } = principal.subject;
  if (message?.method.startsWith("tasks/")) policy.judgeTask(rights, message);
  if (message?.method !== "tools/call") return { username, roles: [], databases: [] };
  await rights.countCall?.();
  const { decision, database, argument } = await policy.judge(rights, message);
  if (argument !== undefined) judgeParameter(headers, message, argument, database);
  principal.noteCall?.(message.name ?? "");
  return { username, roles: [decision.role ?? ""], databases: [database] };
}

/**
 * Judges a request: its body, its headers against it, its session, its method, and the tool that
 * it calls.
 *
 * @param body undefined for GET and DELETE
 * @throws McpRefused for what is refused in the protocol's terms
 * @throws Refusal `insufficient_scope`
 */
export async function judgeRequest(
  rules: Rules,
  request: IncomingMessage,
  body: Buffer | undefined,
  principal: Principal,
): Promise<Judged> {
  const message = body === undefined ? undefined : await readMessageInSlices(body);
  const era = message === undefined ? "handshake" : judgeHeaders(request.headers, message);
  // Revisions without sessions ignore the header.
  const sessionId = era === "stateless" ? undefined : sessionIdOf(request);
  const { username } = principal.subject;
  if (sessionId !== undefined && !(await rules.sessions.use(sessionId, username))) {
    const options = { status: 404, id: message?.kind === "request" ? message.id : undefined };
    throw new McpRefused("sessionNotFound", "Session not found", options);
  }
  if (sessionId === undefined && request.headers["last-event-id"] !== undefined) {
    throw new McpRefused("invalidRequest", "Invalid request: Last-Event-ID without Mcp-Session-Id");
  }
  if (message !== undefined) requireMethod(message, principal, era);
  const identity = await identify(rules, request, message, principal);
  if (message !== undefined) await requireOwnTask(rules.sessions, message, username);
  return { message, era, sessionId, identity };
}

/**
 * True if the answer may hold a list of tools or tasks: that of a request for one, and the stream of
 * a GET, on which answers are delivered again that a client has missed.
 */
export function mayList({ method }: IncomingMessage, { message }: Judged): boolean {
  if (message === undefined) return method === "GET";
  return message.method === "tools/list" || message.method === "tasks/list";
}

/** What the gateway knows of where a request came from. */
export interface Origin extends Omit<Provenance, "identity"> {
  /** True if the peer's `X-Forwarded-*` headers are believed. */
  readonly isTrusted: boolean;
  /** False while authentication is off: then nobody is vouched for. */
  readonly isAuthenticated: boolean;
}

/** A request that was judged, with its whole body; undefined for GET and DELETE. */
interface UpwardRequest {
  readonly request: IncomingMessage;
  readonly judged: Judged;
  readonly body: Buffer | undefined;
}

/** Headers that were held against the body, its form, and the caller. */
const judgedHeaders: ReadonlySet<string> = new Set([
  ...["mcp-protocol-version", "mcp-method", "mcp-name", "mcp-session-id", "last-event-id"],
  ...["content-type", "content-encoding"],
]);

/** True for headers that the gateway writes itself, or by what it has judged; in any spelling. */
const isWritten = memoize((name) => name === "host" || judgedHeaders.has(foldHeader(name)), 256);

/**
 * The headers that go up: the client's that may, and the gateway's own. Those that were judged go up
 * exactly as they were: not in another spelling that a server may fold to theirs, and also if the
 * client had them taken off as headers of the connection.
 */
export function upwardHeaders(
  { request, judged: { era, sessionId, identity }, body }: UpwardRequest,
  policy: HeaderPolicy,
  origin: Origin,
): Record<string, string | string[]> {
  const isInSession = era !== "stateless" && sessionId !== undefined;
  const headers = passedHeaders(request.headers, policy, origin.isTrusted, isWritten);
  for (const name of judgedHeaders) {
    const value = request.headers[name];
    if (value !== undefined && (isInSession || name !== "mcp-session-id")) headers[name] = value;
  }
  // Lists are looked at on their way back, which an encoding would hinder.
  headers["accept-encoding"] = "identity";
  if (body !== undefined) headers["content-length"] = String(body.length);
  const own = { ...origin, identity: origin.isAuthenticated ? identity : undefined };
  return Object.assign(headers, gatewayHeaders(own));
}

/**
 * Streams that one user may have open at one time, one for each session that is remembered. Servers
 * have room for some number of all users together, which no one user is to fill.
 */
const MOST_PER_USER = 100;

/** True for a request whose answer only tells of changes, for as long as its client likes. */
export function isSubscription({ method }: IncomingMessage, { message }: Judged): boolean {
  return message === undefined ? method === "GET" : message.method === "subscriptions/listen";
}

/** How many streams of changes each user has open, counted here or in another process. */
export interface StreamRegister {
  /** Counts a stream as the user's until its answer is over. @throws McpRefused `tooManyStreams` */
  open(username: string, response: ServerResponse, id: McpRefused["id"]): void | Promise<void>;
}

/** The refusal of a stream beyond those that a user may have open. */
export function tooManyStreams(id: McpRefused["id"], most = MOST_PER_USER): McpRefused {
  const problem = `Too many streams: close one of the ${most} that are open`;
  return new McpRefused("tooManyStreams", problem, { status: 429, id });
}

/** How many streams of changes each user has open. */
export class OpenStreams implements StreamRegister {
  readonly #most: number;
  readonly #counts = new Map<string, number>();

  constructor(most = MOST_PER_USER) {
    this.#most = most;
  }

  get size(): number {
    return this.#counts.size;
  }

  open(username: string, response: ServerResponse, id: McpRefused["id"]): void {
    if (!this.take(username)) throw tooManyStreams(id, this.#most);
    response.once("close", () => this.release(username));
  }

  /** Counts a stream until it is given back; false if the user has too many open. */
  take(username: string): boolean {
    const count = this.#counts.get(username) ?? 0;
    if (count >= this.#most) return false;
    this.#counts.set(username, count + 1);
    return true;
  }

  release(username: string): void {
    const left = (this.#counts.get(username) ?? 0) - 1;
    if (left > 0) this.#counts.set(username, left);
    else this.#counts.delete(username);
  }
}
