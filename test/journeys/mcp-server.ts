import type { Test } from "tap";
import { startGateway, type TestGateway } from "../kit/gateway.ts";
import { tables } from "../kit/tables.ts";
import { FixtureServer } from "../mcp/fixture-server.ts";
import { initialize } from "../mcp/messages.ts";
import { send } from "./mcp.ts";
import { staffedHome } from "./staff.ts";

const policy = tables("mcp.tools", [
  { name: "test_simple_text", permission: "SELECT", database: "main" },
  { name: "query_database", permission: "SELECT", database_argument: "database" },
  { name: "wait", permission: "UPDATE", database: "main" },
]);

export interface Setting {
  readonly gateway: TestGateway;
  readonly fixture: FixtureServer;
}

/** A gateway in front of an MCP server that remembers what reached it. */
export async function open(t: Test, grants: readonly string[], more = ""): Promise<Setting> {
  const fixture = new FixtureServer();
  const url = await fixture.listen();
  t.teardown(() => fixture.close());
  const gateway = await startGateway(t, {
    home: await staffedHome(t, grants),
    upstream: 'http://127.0.0.1:9"\nauthorization = "Bearer of-the-database',
    config: `[mcp]\nupstream = "${url}"\n${more}\n${policy}`,
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

/** Begins a session, and gives its id. */
export async function beginSession(gateway: TestGateway, token: string): Promise<string> {
  const { headers } = await send(gateway, initialize, token);
  return headers.get("mcp-session-id") ?? "";
}
