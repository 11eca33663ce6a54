import type { Test } from "tap";
import type { Ask } from "../kit/client.ts";
import { type Answer, auditOf, startGateway, type TestGateway } from "../kit/gateway.ts";
import { tables } from "../kit/tables.ts";
import { FixtureServer } from "../mcp/fixture-server.ts";
import { initialize, statelessCall } from "../mcp/messages.ts";
import { staffedHome } from "./staff.ts";

export function send(
  gateway: TestGateway,
  { method = "POST", headers = {}, body }: Ask,
  token?: string,
): Promise<Answer> {
  const credential: Record<string, string> =
    token === undefined ? {} : { authorization: `Bearer ${token}` };
  const named = Object.entries(headers).map(([name, value]) => [name, String(value)] as const);
  return gateway.request("/mcp", {
    method,
    headers: { ...Object.fromEntries(named), ...credential },
    ...(body === undefined ? {} : { body: body.toString() }),
  });
}

/** Calls a tool in the protocol of 2026-07-28. */
export function callTool(
  gateway: TestGateway,
  name: string,
  args: Readonly<Record<string, unknown>>,
  token?: string,
): Promise<Answer> {
  return send(gateway, statelessCall("tools/call", { name, arguments: args }), token);
}

function objectIn(value: unknown): Record<string, unknown> {
  return typeof value === "object" && value !== null ? { ...value } : {};
}

/** The first text of a tool's result. */
export function textOf({ body }: Answer): string {
  const { content } = objectIn(body.result);
  return Array.isArray(content) ? String(objectIn(content[0]).text) : "";
}

/** The error code of a refused call: in the body, the JSON-RPC error or the result. */
export function refusalOf(answer: Answer): string | undefined {
  const { body } = answer;
  if (typeof body.code === "string") return body.code;
  const { data } = objectIn(body.error);
  if (data !== undefined) return String(objectIn(data).code);
  if (objectIn(body.result).isError !== true) return undefined;
  return /\((\w+)\)$/.exec(textOf(answer))?.[1] ?? "failed";
}

/** Checks the decision of a refusal in the header, and its reason in the audit. */
export async function checkDenied(t: Test, gateway: TestGateway, answer: Answer, reason: string) {
  t.equal(answer.headers.get("x-gatehouse-decision"), "deny", reason);
  t.match(await auditOf(gateway, answer), { decision: "deny", reason, path: "/mcp" });
}

export const malformed: Readonly<Record<string, Ask>> = refusedMessages();

function refusedMessages(): Record<string, Ask> {
  const list = statelessCall("tools/list");
  const of = (headers: Record<string, string>) => ({
    ...list,
    headers: { ...list.headers, ...headers },
  });
  return {
    parse_error: { ...list, body: "{" },
    invalid_request: { ...list, body: `[${list.body}]` },
    invalid_params: { ...list, body: list.body.replace('"_meta":{', '"_meta":1,"x":{') },
    header_mismatch: of({ "mcp-method": "ping" }),
    unsupported_version: {
      ...of({ "mcp-protocol-version": "2099-01-01" }),
      body: list.body.replace("2026-07-28", "2099-01-01"),
    },
    method_not_found: statelessCall("tools/run"),
  };
}

const toolPolicy = tables("mcp.tools", [
  { name: "test_simple_text", permission: "SELECT", database: "main" },
  { name: "query_database", permission: "SELECT", database_argument: "database" },
  { name: "wait", permission: "UPDATE", database: "main" },
]);

/** A gateway with an MCP server that records its requests. */
export async function openProxied(t: Test, grants: readonly string[], more = "") {
  const fixture = new FixtureServer();
  const url = await fixture.listen(t);
  const gateway = await startGateway(t, {
    home: await staffedHome(t, grants),
    upstream: 'http://127.0.0.1:9"\nauthorization = "Bearer of-the-database',
    config: `[mcp]\nupstream = "${url}"\n${more}\n${toolPolicy}`,
  });
  return { gateway, fixture };
}

export const staff = [
  "root * Owner",
  "alice main ReadOnly",
  "bob main ReadWrite",
  "eve side ReadOnly",
];

export const revision = { "mcp-protocol-version": "2025-11-25" };

export async function beginSession(gateway: TestGateway, token: string): Promise<string> {
  const { headers } = await send(gateway, initialize, token);
  return headers.get("mcp-session-id") ?? "";
}
