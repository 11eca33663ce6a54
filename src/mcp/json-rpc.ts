import type { ServerResponse } from "node:http";

/** Error codes of JSON-RPC 2.0 (section 5.1) and of MCP 2026-07-28. */
export const errorCodes = {
  parseError: -32700,
  invalidRequest: -32600,
  methodNotFound: -32601,
  invalidParams: -32602,
  internalError: -32603,
  /** A session that is unknown, over, or another user's. */
  sessionNotFound: -32001,
  /** A call that the caller's rights do not cover: of this gateway. */
  denied: -32010,
  headerMismatch: -32020,
  unsupportedVersion: -32022,
} as const;

/** What identifies a request to its sender; numbers are integers up to 2^53 - 1. */
export type MessageId = string | number;

export interface McpRefusedOptions {
  /** The HTTP status, 400 unless given. */
  readonly status?: number;
  /** Further members of the error, fit for the client. */
  readonly data?: Readonly<Record<string, unknown>>;
  /** The request that is refused, if it could be read. */
  readonly id?: MessageId | undefined;
}

/** A message that is refused in the protocol's own terms: answered as a JSON-RPC error. */
export class McpRefused extends Error {
  override readonly name = "McpRefused";
  readonly code: number;
  readonly status: number;
  readonly data: Readonly<Record<string, unknown>> | undefined;
  readonly id: MessageId | undefined;

  constructor(code: keyof typeof errorCodes, message: string, options: McpRefusedOptions = {}) {
    super(message);
    this.code = errorCodes[code];
    this.status = options.status ?? 400;
    this.data = options.data;
    this.id = options.id;
  }
}

/**
 * Answers a refusal as a JSON-RPC error, whose id is null if the request's could not be read
 * (JSON-RPC 2.0, section 5). Headers that are set on the response already stay.
 */
export function sendMcpRefusal(
  response: ServerResponse,
  refused: McpRefused,
  headers: readonly string[] = [],
): void {
  if (response.headersSent || response.destroyed) return;
  const { id = null, code, message, data, status } = refused;
  const error = data === undefined ? { code, message } : { code, message, data };
  const bytes = Buffer.from(JSON.stringify({ jsonrpc: "2.0", id, error }));
  for (let at = 0; at + 1 < headers.length; at += 2) {
    response.setHeader(headers[at] ?? "", headers[at + 1] ?? "");
  }
  response.setHeader("Content-Type", "application/json");
  response.setHeader("Content-Length", bytes.length);
  response.setHeader("Cache-Control", "no-store");
  response.setHeader("X-Content-Type-Options", "nosniff");
  response.writeHead(status);
  response.end(bytes);
}
