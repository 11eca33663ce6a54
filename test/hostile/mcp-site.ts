/** A gateway with a foreign MCP server, or the embedded one, for messages that mean no good. */
import type { Test } from "tap";
import { staffedHome, tokenOf } from "../journeys/staff.ts";
import { ask, type PlainAnswer } from "../kit/client.ts";
import { startGateway, type TestGateway } from "../kit/gateway.ts";
import { tables } from "../kit/tables.ts";
import { postHeaders } from "../mcp/messages.ts";
import { Witness } from "./witness.ts";

const grants = [
  ...["root * Owner", "alice main ReadOnly", "bob main ReadWrite", "bob side ReadWrite"],
  "carol side ReadOnly",
];

const policy = tables("mcp.tools", [
  { name: "look", permission: "SELECT", database: "main" },
  { name: "ask", permission: "SELECT", database_argument: "database" },
  { name: "change", permission: "UPDATE", database: "main" },
]);

/** What stands behind `/mcp`, and who knocks. */
export interface McpSite {
  readonly gateway: TestGateway;
  readonly witness: Witness;
  /** Reads `main` and nothing else. */
  readonly alice: string;
  /** Changes `main` and `side`. */
  readonly bob: string;
}

/** Starts a gateway in front of a witness; both end with the test. */
export async function openMcpSite(t: Test, isEmbedded = false): Promise<McpSite> {
  const witness = new Witness();
  await witness.listen();
  t.teardown(() => witness.close());
  const gateway = await startGateway(t, {
    home: await staffedHome(t, grants),
    upstream: witness.url,
    config: isEmbedded ? "" : `[mcp]\nupstream = "${witness.url}/mcp"\n${policy}`,
  });
  const [alice, bob] = [await tokenOf(gateway, "alice"), await tokenOf(gateway, "bob")];
  return { gateway, witness, alice, bob };
}

/** Sends a message as it is written, as clients do that begin by a handshake. */
export function post(
  { gateway }: McpSite,
  token: string,
  body: string | Buffer,
  headers: Readonly<Record<string, string | string[]>> = {},
): Promise<PlainAnswer> {
  return ask(`${gateway.url}/mcp`, {
    method: "POST",
    headers: { ...postHeaders, authorization: `Bearer ${token}`, ...headers },
    body,
  });
}

/**
 * True if an answer says that nothing was done, by HTTP, by JSON-RPC or as a tool's error, or says
 * nothing, as to a notification.
 */
export function isRefusal({ status, body }: PlainAnswer): boolean {
  if (status >= 400 || (status === 202 && body.length === 0)) return true;
  const text = body.toString();
  const { error, result } = JSON.parse(/^data: (?<json>.*)$/m.exec(text)?.groups?.json ?? text);
  return error !== undefined || result?.isError === true;
}
