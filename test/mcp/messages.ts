import type { Ask } from "../kit/client.ts";

const prefix = "io.modelcontextprotocol";

export const postHeaders = {
  "content-type": "application/json",
  accept: "application/json, text/event-stream",
};

/** `params._meta` of a request of 2026-07-28. */
export function envelope(more: Readonly<Record<string, unknown>> = {}): Record<string, unknown> {
  const named = Object.entries(more).map(([key, value]) => [`${prefix}/${key}`, value] as const);
  return {
    [`${prefix}/protocolVersion`]: "2026-07-28",
    [`${prefix}/clientInfo`]: { name: "test", version: "1.0.0" },
    [`${prefix}/clientCapabilities`]: {},
    ...Object.fromEntries(named),
  };
}

/** A request of 2026-07-28 with its headers. */
export function statelessCall(
  method: string,
  params: Readonly<Record<string, unknown>> = {},
  meta: Readonly<Record<string, unknown>> = {},
): Ask & { headers: Record<string, string>; body: string } {
  const headers: Record<string, string> = {
    ...postHeaders,
    "mcp-protocol-version": "2026-07-28",
    "mcp-method": method,
  };
  const name = params.name ?? params.uri ?? params.taskId;
  if (typeof name === "string") headers["mcp-name"] = name;
  const message = { jsonrpc: "2.0", id: 1, method, params: { ...params, _meta: envelope(meta) } };
  return { method: "POST", headers, body: JSON.stringify(message) };
}

/** A request of an earlier revision. */
export function handshakeCall(
  method: string,
  params: Readonly<Record<string, unknown>> = {},
  headers: Readonly<Record<string, string>> = {},
): Ask & { headers: Record<string, string>; body: string } {
  const message = { jsonrpc: "2.0", id: 1, method, params };
  const body = JSON.stringify(message);
  return { method: "POST", headers: { ...postHeaders, ...headers }, body };
}

export const initialize = handshakeCall("initialize", {
  protocolVersion: "2025-11-25",
  capabilities: {},
  clientInfo: { name: "test", version: "1.0.0" },
});
