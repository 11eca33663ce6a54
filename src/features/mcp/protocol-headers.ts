import { isUtf8 } from "node:buffer";
import type { IncomingHttpHeaders } from "node:http";
import { foldHeader } from "../../core/config/kinds.ts";
import { type Era, type McpMessage, McpRefused } from "./message.ts";

/** Newest first. */
const protocolVersions = [
  "2026-07-28",
  "2025-11-25",
  "2025-06-18",
  "2025-03-26",
  "2024-11-05",
] as const;

/** The first revision without a handshake. Its headers mirror the body. */
const firstStateless = "2026-07-28";

/** Methods that require `Mcp-Name`. The task methods come from the tasks extension. */
const namedMethods: ReadonlySet<string> = new Set([
  "tools/call",
  "resources/read",
  "prompts/get",
  "tasks/get",
  "tasks/update",
  "tasks/cancel",
]);

const plainValue = /^[\t\x20-\x7e]*$/;
const encodedValue = /^=\?base64\?(?<base64>.*)\?=$/;

/**
 * Decodes plain text, or UTF-8 in base64 between `=?base64?` and `?=` (MCP 2026-07-28, Streamable
 * HTTP, Value Encoding). Undefined if it is malformed.
 */
export function decodeHeaderValue(value: string): string | undefined {
  if (!plainValue.test(value)) return undefined;
  const base64 = encodedValue.exec(value)?.groups?.base64;
  if (base64 === undefined) return value;
  const bytes = Buffer.from(base64, "base64");
  // Only the canonical base64 form is accepted (RFC 4648, section 3.5).
  if (bytes.toString("base64") !== base64 || !isUtf8(bytes)) return undefined;
  return bytes.toString("utf8");
}

/** Text that a header cannot carry, or that looks encoded, becomes UTF-8 in base64. */
export function encodeHeaderValue(text: string): string {
  const isPlain = plainValue.test(text) && !encodedValue.test(text);
  // Recipients may drop empty values and surrounding whitespace (RFC 9110, section 5.5).
  if (isPlain && text !== "" && text === text.trim()) return text;
  return `=?base64?${Buffer.from(text).toString("base64")}?=`;
}

function mismatch(message: McpMessage, problem: string): McpRefused {
  return new McpRefused("headerMismatch", `Header mismatch: ${problem}`, { id: message.id });
}

function requireSame(
  message: McpMessage,
  name: string,
  header: string | undefined,
  expected: string | undefined,
): void {
  if (header === undefined) return;
  const value = decodeHeaderValue(header);
  if (value === undefined) throw mismatch(message, `${name} is malformed`);
  if (value !== expected) throw mismatch(message, `${name} differs from the body`);
}

function readVersion(headers: IncomingHttpHeaders, message: McpMessage): string | undefined {
  const header = headers["mcp-protocol-version"]?.toString();
  const claimed = message.protocolVersion;
  if (claimed !== undefined && header !== claimed) {
    const problem = header === undefined ? "is missing" : "differs from the body";
    throw mismatch(message, `MCP-Protocol-Version ${problem}`);
  }
  if (header === undefined || protocolVersions.some((version) => version === header)) return header;
  // A client that names its version in each request can only use revisions without a handshake.
  const isUsable = (version: string) => claimed === undefined || version >= firstStateless;
  const data = { supported: protocolVersions.filter(isUsable), requested: header };
  const options = { id: message.id, data };
  throw new McpRefused("unsupportedVersion", "Unsupported protocol version", options);
}

/** Compares headers with the argument that they mirror, in every spelling that servers may fold. */
export function judgeParameter(
  headers: IncomingHttpHeaders,
  message: McpMessage,
  argument: string,
  value: string,
): void {
  const mirrored = foldHeader(`mcp-param-${argument}`);
  for (const [name, header] of Object.entries(headers)) {
    if (foldHeader(name) !== mirrored) continue;
    requireSame(message, `Mcp-Param-${argument}`, header?.toString(), value);
  }
}

/**
 * Compares `MCP-Protocol-Version`, `Mcp-Method` and `Mcp-Name` with the body. Clients before
 * 2026-07-28 may omit the last two. Any that they send must match, since a server or proxy after
 * the gateway may trust them.
 */
export function judgeHeaders(headers: IncomingHttpHeaders, message: McpMessage): Era {
  const version = readVersion(headers, message);
  const isStateless = version !== undefined && version >= firstStateless;
  const isRequest = message.kind === "request";
  const isRequired = isStateless && isRequest;
  const method = headers["mcp-method"]?.toString();
  const name = headers["mcp-name"]?.toString();
  const isNamed = namedMethods.has(message.method) && message.name !== undefined;
  const expected = message.kind === "response" ? undefined : message.method;
  requireSame(message, "Mcp-Method", method, expected);
  if (isRequired && method === undefined) throw mismatch(message, "Mcp-Method is missing");
  requireSame(message, "Mcp-Name", name, message.name);
  if (isRequired && isNamed && name === undefined) throw mismatch(message, "Mcp-Name is missing");
  if (!isStateless) return "handshake";
  if (message.kind === "response") {
    throw new McpRefused(
      "invalidRequest",
      "Invalid request: revision 2026-07-28 has no responses from clients",
    );
  }
  if (isRequest && message.protocolVersion === undefined) {
    const problem = "Invalid params: _meta has no protocol version";
    throw new McpRefused("invalidParams", problem, { id: message.id });
  }
  return "stateless";
}
