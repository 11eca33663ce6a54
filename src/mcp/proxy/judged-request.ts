import type { IncomingMessage, ServerResponse } from "node:http";
import type { Decision } from "../../access/rights.ts";
import { foldHeader } from "../../config/kinds.ts";
import type { Configuration } from "../../config/schema.ts";
import { runCooperatively } from "../../cooperative-scheduling.ts";
import { memoize, memoizeLast } from "../../memoize.ts";
import type { PermissionClass } from "../../query/query.ts";
import {
  gatewayHeaders,
  type HeaderPolicy,
  type Identity,
  type Provenance,
  passedHeaders,
} from "../../upstream/headers.ts";
import type { Principal } from "../authenticate.ts";
import {
  type McpMessage,
  McpRefused,
  plainNameIn,
  readKnownMembers,
  readMessageInSlices,
  requireMethod,
} from "../message.ts";
import { type Era, judgeHeaders, judgeParameter } from "../protocol-headers.ts";
import { requireOwnTask, type SessionRegister } from "./sessions.ts";

/** The right that a call of a foreign server's tool needs, and on which database. */
export type ToolRule = Configuration["mcp"]["tools"][number];

/** The caller's rights according to the live access file. */
export interface Rights {
  /** Decides on one call. Invoked once per call, so that it can be audited. */
  readonly decide: (rule: ToolRule, database: string) => Decision;
  /** True if the caller has the right on `database`, or on any database if it is undefined. */
  readonly mayUse: (permission: PermissionClass, database?: string) => boolean;
  /** @throws Refusal `rate_limited` */
  readonly countCall?: () => Promise<void> | undefined;
}

interface CallDecision {
  readonly decision: Decision;
  readonly database: string;
  readonly argument: string | undefined;
}

function denied(message: McpMessage, code: string): McpRefused {
  const text = `Denied: this tool may not be called (${code})`;
  const options = { status: 200, code, id: message.id, data: { code } };
  return new McpRefused("denied", text, options);
}

async function databaseOf(rule: ToolRule, message: McpMessage): Promise<string> {
  if (rule.database !== undefined) return rule.database;
  const { database_argument: key = "" } = rule;
  const args = message.arguments ?? Buffer.from("{}");
  const members = await runCooperatively(readKnownMembers(args, [key], message.id));
  const database = plainNameIn(members.get(key));
  if (database !== undefined) return database;
  const problem = `Invalid params: the argument ${key} names no database`;
  throw new McpRefused("invalidParams", problem, { status: 200, id: message.id });
}

/** The rules for the tools of a foreign server. A tool without a rule cannot be called. */
export class ToolPolicy {
  readonly #rules: () => readonly ToolRule[];
  readonly #byName = memoizeLast(
    (rules: readonly ToolRule[]) => new Map(rules.map((rule) => [rule.name, rule])),
  );

  constructor(rules: () => readonly ToolRule[]) {
    this.#rules = rules;
  }

  /**
   * Judges a `tools/call`.
   *
   * @throws McpRefused `denied`, or `invalidParams` if the call does not name its database
   */
  async judge(rights: Rights, message: McpMessage): Promise<CallDecision> {
    const rule = this.#ruleOf(message.name ?? "");
    if (rule === undefined) throw denied(message, "tool_without_policy");
    const database = await databaseOf(rule, message);
    const decision = rights.decide(rule, database);
    if (!decision.allowed) throw denied(message, decision.reason);
    return { decision, database, argument: rule.database_argument };
  }

  /**
   * Judges a task request. Tasks come from tool calls, so a caller who may call no tool is denied.
   *
   * @throws McpRefused `denied`
   */
  judgeTask(rights: Rights, message: McpMessage): void {
    const mayUse = ({ permission, database }: ToolRule) => rights.mayUse(permission, database);
    if (!this.#rules().some(mayUse)) throw denied(message, "no_grant");
  }

  /** True if the caller may call the tool on at least one database. */
  mayCall(rights: Rights, name: string): boolean {
    const rule = this.#ruleOf(name);
    return rule !== undefined && rights.mayUse(rule.permission, rule.database);
  }

  #ruleOf(name: string): ToolRule | undefined {
    return this.#byName(this.#rules()).get(name);
  }
}

/** A request that was judged and may be forwarded upstream. */
export interface Judged {
  readonly message: McpMessage | undefined;
  readonly era: Era;
  readonly sessionId: string | undefined;
  /** The caller's identity for the upstream server. */
  readonly identity: Identity;
}

interface Rules {
  readonly policy: ToolPolicy;
  readonly rights: Rights;
  readonly sessions: SessionRegister;
}

function sessionIdOf({ headers }: IncomingMessage): string | undefined {
  const id = headers["mcp-session-id"];
  return typeof id === "string" ? id : undefined;
}

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
 * Judges a request: body, headers, session, method, and the tool or task.
 *
 * @param body undefined for GET and DELETE
 * @throws McpRefused for refusals in the protocol's terms
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
 * True if the response may hold a list of tools or tasks. The stream of a GET may, because servers
 * redeliver missed responses there.
 */
export function mayList({ method }: IncomingMessage, { message }: Judged): boolean {
  if (message === undefined) return method === "GET";
  return message.method === "tools/list" || message.method === "tasks/list";
}

export interface Origin extends Omit<Provenance, "identity"> {
  /** True if the peer's `X-Forwarded-*` headers are trusted. */
  readonly isTrusted: boolean;
  /** False while authentication is off: the gateway then vouches for no identity. */
  readonly isAuthenticated: boolean;
}

interface UpwardRequest {
  readonly request: IncomingMessage;
  readonly judged: Judged;
  readonly body: Buffer | undefined;
}

/** Headers that were checked against the body, its format, or the caller. */
const judgedHeaders: ReadonlySet<string> = new Set([
  ...["mcp-protocol-version", "mcp-method", "mcp-name", "mcp-session-id", "last-event-id"],
  ...["content-type", "content-encoding"],
]);

/** True for headers that the gateway sets itself or has judged, in any spelling. */
const isWritten = memoize((name) => name === "host" || judgedHeaders.has(foldHeader(name)), 256);

/**
 * The headers to forward upstream: allowed client headers and the gateway's own. Judged headers are
 * forwarded exactly as they were judged. Other spellings, which a server may fold to the same name,
 * are dropped. Judged headers stay even if the client listed them in `Connection`.
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
  // Lists are filtered on the way back, so the response must not be compressed.
  headers["accept-encoding"] = "identity";
  if (body !== undefined) headers["content-length"] = String(body.length);
  const own = { ...origin, identity: origin.isAuthenticated ? identity : undefined };
  return Object.assign(headers, gatewayHeaders(own));
}

/**
 * Open streams per user, one for each session that is remembered. Upstream servers limit the
 * streams of all users together, and no single user may fill that limit.
 */
const MOST_PER_USER = 100;

/**
 * True for a request whose response only reports changes and stays open as long as the client
 * likes.
 */
export function isSubscription({ method }: IncomingMessage, { message }: Judged): boolean {
  return message === undefined ? method === "GET" : message.method === "subscriptions/listen";
}

/** Open change streams per user, counted here or in another process. */
export interface StreamRegister {
  /** Counts a stream until its response closes. @throws McpRefused `tooManyStreams` */
  open(username: string, response: ServerResponse, id: McpRefused["id"]): void | Promise<void>;
}

export function tooManyStreams(id: McpRefused["id"], most = MOST_PER_USER): McpRefused {
  const problem = `Too many streams: close one of the ${most} that are open`;
  return new McpRefused("tooManyStreams", problem, { status: 429, id });
}

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

  /** Counts a stream until it is released. False if the user has too many open. */
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
