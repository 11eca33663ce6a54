import type { McpServer } from "@modelcontextprotocol/server";
import type { Test } from "tap";
import { createMcpProxy, type ToolRule } from "../../src/features/mcp/proxy/proxy.ts";
import {
  OpenStreams,
  type SessionRegister,
  Sessions,
} from "../../src/features/mcp/proxy/sessions.ts";
import { FixtureServer } from "./fixture-server.ts";
import { fixtureTools } from "./fixture-tools.ts";
import { type Endpoint, exchangeOf, type Grants, listen, openCore, principalOf } from "./kit.ts";

export const everyTool: readonly ToolRule[] = fixtureTools.map((name) =>
  name === "query_database"
    ? { name, permission: "SELECT", database_argument: "database" }
    : { name, permission: "SELECT", database: "main" },
);

interface ProxiedSettingOptions {
  readonly grants: Grants;
  readonly policy?: readonly ToolRule[] | (() => readonly ToolRule[]);
  readonly sessions?: SessionRegister;
  readonly sessionTouch?: number;
  readonly streams?: OpenStreams;
  readonly target?: string;
  readonly more?: (server: McpServer) => void;
}

/** The proxy for a server, by default the fixture. The caller is `alice`. */
export async function openProxied(
  t: Test,
  {
    grants,
    policy = everyTool,
    sessions = new Sessions(),
    sessionTouch,
    streams = new OpenStreams(),
    target,
    more,
  }: ProxiedSettingOptions,
) {
  const fixture = new FixtureServer(more);
  const fixtureUrl = await fixture.listen(t);
  const denials: string[] = [];
  // Nothing listens there: only the MCP server gets requests.
  const config = `[upstream]
url = "http://127.0.0.1:1"
forward_authorization = true
connect_timeout = 5
response_timeout = 5
[mcp]
upstream = "${target ?? fixtureUrl}"
`;
  const { gateway } = await openCore(t, grants, config);
  const rulesOf = typeof policy === "function" ? policy : () => policy;
  const { configuration } = gateway;
  const proxy = createMcpProxy(
    {
      ...gateway,
      get configuration() {
        return { ...configuration, mcp: { ...configuration.mcp, tools: rulesOf() } };
      },
    },
    target ?? fixtureUrl,
    { sessions, streams, ...(sessionTouch === undefined ? {} : { sessionTouchMs: sessionTouch }) },
  );
  t.teardown(() => proxy.close());
  const url = await listen(t, async (request, response, body) => {
    const exchange = exchangeOf(request, response, endpoint.principal);
    await proxy.handle(exchange, request.method === "POST" ? body : undefined);
    const { reason } = exchange.verdict;
    if (reason !== undefined) denials.push(reason);
  });
  const endpoint: Endpoint = { url, principal: principalOf("alice") };
  return { endpoint, fixture, denials };
}
