import type { ServerResponse } from "node:http";
import type { McpScope } from "../oauth/server/protocol.ts";
import { Refusal } from "../refusal.ts";
import type { Principal } from "./authenticate.ts";
import type { McpMessage } from "./message.ts";
import type { Era } from "./protocol-headers.ts";

/** Error codes, each with its audit reason. */

const errors = {
  // JSON-RPC 2.0, section 5.1
  parseError: [-32700, "parse_error"],
  invalidRequest: [-32600, "invalid_request"],
  methodNotFound: [-32601, "method_not_found"],
  invalidParams: [-32602, "invalid_params"],
  internalError: [-32603, "internal_error"],
  /** The session is unknown, has ended, or belongs to another user. */
  sessionNotFound: [-32001, "session_not_found"],
  /** Gatehouse only: the caller lacks the right. */
  denied: [-32010, "denied"],
  /** Gatehouse only: the user has too many open streams. */
  tooManyStreams: [-32011, "too_many_streams"],
  // MCP 2026-07-28
  headerMismatch: [-32020, "header_mismatch"],
  unsupportedVersion: [-32022, "unsupported_version"],
} as const satisfies Record<string, readonly [code: number, reason: string]>;

type ErrorName = keyof typeof errors;

const reasons: ReadonlyMap<number, string> = new Map(Object.values(errors));

export function errorCode(name: ErrorName): number {
  return errors[name][0];
}

/** The stable audit code of an error number, `bad_request` for numbers not defined here. */
export function reasonOf(code: number): string {
  return reasons.get(code) ?? "bad_request";
}

/** Numbers are integers up to 2^53 - 1. */
export type MessageId = string | number;

interface McpRefusedOptions {
  readonly status?: number;
  /** Stable code of the rule that refuses. Default: that of the error. */
  readonly reason?: string;
  /** Additional members of the error, safe to show to the client. */
  readonly data?: Readonly<Record<string, unknown>>;
  readonly id?: MessageId | undefined;
}

/** A refused message, which is answered with a JSON-RPC error. */
export class McpRefused extends Error {
  override readonly name = "McpRefused";
  readonly code: number;
  readonly reason: string;
  readonly status: number;
  readonly data: Readonly<Record<string, unknown>> | undefined;
  readonly id: MessageId | undefined;

  constructor(error: ErrorName, message: string, options: McpRefusedOptions = {}) {
    super(message);
    this.code = errors[error][0];
    this.reason = options.reason ?? errors[error][1];
    this.status = options.status ?? 400;
    this.data = options.data;
    this.id = options.id;
  }
}

export interface Answering {
  /**
   * Added headers, names and values in turn. Call this only when the response begins, because the
   * headers report the decision.
   */
  readonly answerHeaders: () => readonly string[];
  /** Called with a stable code before the response to a refused request begins. */
  readonly onRefused: (reason: string) => void;
}

/** @param headers names and values in turn */
export function setHeaders(response: ServerResponse, headers: readonly string[]): void {
  for (let at = 0; at + 1 < headers.length; at += 2) {
    response.setHeader(headers[at] ?? "", headers[at + 1] ?? "");
  }
}

/** Status of an accepted notification. It has no response body, not even for a refusal. */
const ACCEPTED = 202;

/**
 * Sends a refusal as a JSON-RPC error. The id is null if the request's id could not be read
 * (JSON-RPC 2.0, section 5).
 */
export function sendMcpRefusal(
  response: ServerResponse,
  refused: McpRefused,
  { answerHeaders, onRefused }: Answering,
): void {
  onRefused(refused.reason);
  if (response.headersSent || response.destroyed) return;
  const { id = null, code, message, data, status } = refused;
  const error = data === undefined ? { code, message } : { code, message, data };
  const isAnswered = status !== ACCEPTED;
  const bytes = Buffer.from(isAnswered ? JSON.stringify({ jsonrpc: "2.0", id, error }) : "");
  setHeaders(response, answerHeaders());
  if (isAnswered) response.setHeader("Content-Type", "application/json");
  response.setHeader("Content-Length", bytes.length);
  response.setHeader("Cache-Control", "no-store");
  response.setHeader("X-Content-Type-Options", "nosniff");
  response.writeHead(status);
  response.end(bytes);
}

/**
 * Methods of all protocol revisions with the scope that each needs. Other methods are
 * server-specific with unknown effects, so they are refused.
 */
const scopes: ReadonlyMap<string, McpScope | undefined> = new Map([
  ...needing(undefined, "initialize", "ping", "server/discover", "logging/setLevel"),
  ...needing(undefined, "subscriptions/listen"),
  ...needing("mcp:tools", "tools/list", "tools/call", "tasks/get", "tasks/list", "tasks/result"),
  ...needing("mcp:tools", "tasks/update", "tasks/cancel"),
  ...needing("mcp:resources", "prompts/list", "prompts/get", "completion/complete"),
  ...needing("mcp:resources", "resources/list", "resources/templates/list", "resources/read"),
  ...needing("mcp:resources", "resources/subscribe", "resources/unsubscribe"),
]);

function needing(scope: McpScope | undefined, ...methods: readonly string[]) {
  return methods.map((method) => [method, scope] as const);
}

const notifications: ReadonlySet<string> = new Set([
  "notifications/initialized",
  "notifications/cancelled",
  "notifications/progress",
  "notifications/roots/list_changed",
  "notifications/tasks/status",
]);

/**
 * The status for an unknown method. In revisions with sessions, 404 means a lost session, so only
 * the error reports the problem. Notifications are accepted without an answer.
 */
function statusOfUnknown({ kind }: McpMessage, era: Era): number {
  if (era === "stateless") return 404;
  return kind === "notification" ? 202 : 200;
}

/**
 * Checks a message's method against the token's scopes.
 *
 * @throws McpRefused `methodNotFound`
 * @throws Refusal `insufficient_scope`, which names the missing scope
 */
export function requireMethod(message: McpMessage, principal: Principal, era: Era): void {
  const { kind, method, id } = message;
  if (kind === "response") return;
  const isKnown = kind === "request" ? scopes.has(method) : notifications.has(method);
  if (!isKnown) {
    const options = { status: statusOfUnknown(message, era), id };
    throw new McpRefused("methodNotFound", "Method not found", options);
  }
  const scope = scopes.get(method);
  if (scope === undefined || principal.scopes.has(scope)) return;
  throw new Refusal("insufficient_scope", { scope });
}
