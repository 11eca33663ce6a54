import type { McpServer } from "@modelcontextprotocol/server";
import type { Test } from "tap";
import { decide } from "../../src/access/policy.ts";
import type { Snapshot } from "../../src/access/snapshot.ts";
import type { Principal } from "../../src/mcp/authenticate.ts";
import { createMcpProxy, type Rights, type ToolRule } from "../../src/mcp/proxy/proxy.ts";
import { OpenStreams, type SessionRegister, Sessions } from "../../src/mcp/proxy/sessions.ts";
import { FixtureServer } from "./fixture-server.ts";
import { fixtureTools } from "./fixture-tools.ts";
import { type Endpoint, type Grants, listen, mayUseBy, principalOf, snapshotOf } from "./kit.ts";

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

function rightsBy(snapshot: Snapshot, principal: Principal): Rights {
  return {
    decide: ({ permission }, database) => decide(snapshot, principal.subject, permission, database),
    mayUse: (permission, database) =>
      database === undefined
        ? mayUseBy(snapshot)(principal, permission)
        : decide(snapshot, principal.subject, permission, database).allowed,
  };
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
  const fixtureUrl = await fixture.listen();
  t.teardown(() => fixture.close());
  const snapshot = snapshotOf(grants);
  const denials: string[] = [];
  const proxy = createMcpProxy({
    target: target ?? fixtureUrl,
    policy: typeof policy === "function" ? policy : () => policy,
    headers: {
      forwardHeaders: new Set(),
      forwardAuthorization: true,
      authorization: "Bearer database",
    },
    connectTimeoutMs: 5000,
    responseTimeoutMs: 5000,
    ...(sessionTouch === undefined ? {} : { sessionTouchMs: sessionTouch }),
    sessions,
    streams,
  });
  t.teardown(() => proxy.close());
  const url = await listen(t, (request, response, body) =>
    proxy.handle(
      request,
      response,
      request.method === "POST" ? body : undefined,
      endpoint.principal,
      {
        rights: rightsBy(snapshot, endpoint.principal),
        requestId: "request-1",
        forwardedFor: "192.0.2.7",
        proto: "https",
        host: "gate.test",
        isTrusted: false,
        isAuthenticated: true,
        answerHeaders: () => ["X-Request-Id", "request-1"],
        onRefused: (reason) => denials.push(reason),
      },
    ),
  );
  const endpoint: Endpoint = { url, principal: principalOf("alice") };
  return { endpoint, fixture, denials };
}
