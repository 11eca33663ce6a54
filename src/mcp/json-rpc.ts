import type { ServerResponse } from "node:http";
import type { McpScope } from "../oauth/server/protocol.ts";
import { Refusal } from "../refusal.ts";
import type { Principal } from "./authenticate.ts";
import type { McpMessage } from "./message.ts";
import type { Era } from "./protocol-headers.ts";

/** Every error that is answered: its code, and what the audit calls it. */

const errors = {
  // JSON-RPC 2.0, section 5.1
  parseError: [-32700, "parse_error"],
  invalidRequest: [-32600, "invalid_request"],
  methodNotFound: [-32601, "method_not_found"],
  invalidParams: [-32602, "invalid_params"],
  internalError: [-32603, "internal_error"],
  /** A session that is unknown, over, or another user's. */
  sessionNotFound: [-32001, "session_not_found"],
  /** A call that the caller's rights do not cover: of this gateway. */
  denied: [-32010, "denied"],
  /** A stream more than one user may have open: of this gateway. */
  tooManyStreams: [-32011, "too_many_streams"],
  // MCP 2026-07-28
  headerMismatch: [-32020, "header_mismatch"],
  unsupportedVersion: [-32022, "unsupported_version"],
} as const satisfies Record<string, readonly [code: number, reason: string]>;

type ErrorName = keyof typeof errors;

const reasons: ReadonlyMap<number, string> = new Map(Object.values(errors));

/** The number of an error (JSON-RPC 2.0, section 5.1). */
export function errorCode(name: ErrorName): number {
  return errors[name][0];
}

/** The stable code by which the audit knows an error; `bad_request` for one of another's making. */
export function reasonOf(code: number): string {
  return reasons.get(code) ?? "bad_request";
}

/** What identifies a request to its sender; numbers are integers up to 2^53 - 1. */
export type MessageId = string | number;

interface McpRefusedOptions {
  /** The HTTP status, 400 unless given. */
  readonly status?: number;
  /** The stable code of the rule that refuses; that of the error unless given. */
  readonly reason?: string;
  /** Further members of the error, fit for the client. */
  readonly data?: Readonly<Record<string, unknown>>;
  /** The request that is refused, if it could be read. */
  readonly id?: MessageId | undefined;
}

/** A message that is refused in the protocol's own terms: answered as a JSON-RPC error. */
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

/** What the gateway adds to the answer of a request, and is told of it. */
export interface Answering {
  /**
   * Headers that the gateway adds, names and values in turn. Asked for when the answer begins, and
   * no earlier: they tell what was decided.
   */
  readonly answerHeaders: () => readonly string[];
  /** Told, before the answer begins, that the protocol refuses the request: the stable code why. */
  readonly onRefused: (reason: string) => void;
}

/** Sets headers that are given as names and values in turn. */
export function setHeaders(response: ServerResponse, headers: readonly string[]): void {
  for (let at = 0; at + 1 < headers.length; at += 2) {
    response.setHeader(headers[at] ?? "", headers[at + 1] ?? "");
  }
}

/** The status of a notification that was taken: it has no answer, so a refusal has none either. */
const ACCEPTED = 202;

/**
 * Answers a refusal as a JSON-RPC error, whose id is null if the request's could not be read
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
 * The protocol's methods, all revisions together, each with the scope that it needs, if it needs one. A method that
 * is not here is a server's own, and nobody knows what it would do: it goes nowhere.
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
 * The status of a message with a method that nobody knows. In revisions with sessions 404 says that
 * the session is lost, so there the error alone tells, and a notification is taken and not answered.
 */
function statusOfUnknown({ kind }: McpMessage, era: Era): number {
  if (era === "stateless") return 404;
  return kind === "notification" ? 202 : 200;
}

/**
 * Judges a message by its method and the token's scopes.
 *
 * @throws McpRefused `methodNotFound`
 * @throws Refusal `insufficient_scope`, which names the scope that is missing
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
