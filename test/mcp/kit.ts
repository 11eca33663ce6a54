import { writeFileSync } from "node:fs";
import {
  createServer,
  type IncomingMessage,
  type RequestListener,
  type ServerResponse,
} from "node:http";
import path from "node:path";
import { buffer } from "node:stream/consumers";
import { type Logger, pino } from "pino";
import type { Test } from "tap";
import { openGateway } from "../../src/app/open-gateway.ts";
import type { Role } from "../../src/core/access/roles.ts";
import { blankUser } from "../../src/core/access/snapshot.ts";
import { Refusal } from "../../src/core/base/refusal.ts";
import { loadConfiguration } from "../../src/core/config/load.ts";
import { Exchange } from "../../src/core/http/exchange.ts";
import type { Level } from "../../src/core/query/kind.ts";
import { createSchemaSource, type SchemaSource } from "../../src/core/upstream/schema-source.ts";
import { type Principal, principals } from "../../src/features/mcp/authenticate.ts";
import { createEmbeddedMcp } from "../../src/features/mcp/embedded.ts";
import { type McpScope, mcpScopes } from "../../src/features/oauth/server/protocol.ts";
import { grant, user } from "../access/kit.ts";
import { sharedScene } from "../engine/over-each.ts";
import { temporaryHome } from "../kit/gateway.ts";
import { listening } from "../kit/listening.ts";

export interface Endpoint {
  readonly url: string;
  principal: Principal;
}

export type Grants = Readonly<Record<string, Readonly<Record<string, Role>>>>;

/** A caller with a token of these scopes, by default all. */
export function principalOf(username: string, scopes: readonly McpScope[] = mcpScopes): Principal {
  return {
    subject: { username, tokenDatabase: "*" },
    scopes: new Set(scopes),
    tokenId: `token of ${username}`,
    expiresAt: Number.MAX_SAFE_INTEGER,
    identify: () => blankUser(username),
  };
}

/** The caller's request to a gateway that has authenticated it. */
export function exchangeOf(
  request: IncomingMessage,
  response: ServerResponse,
  principal: Principal,
): Exchange {
  const peer = {
    address: "192.0.2.7",
    forwardedFor: "192.0.2.7",
    proto: "https",
    host: "gate.test",
    requestId: "request-1",
    isTrusted: false,
    isUntrustedProxy: false,
  };
  const exchange = new Exchange(request, response, peer, []);
  exchange.authenticated = principal;
  exchange.routed = { ...exchange.routed, via: "mcp" };
  principals.set(exchange, principal);
  return exchange;
}

/** The gateway's core in this process, with these grants and settings. It ends with the test. */
export async function openCore(
  t: Test,
  grants: Grants,
  config: string,
  more = "",
  log = pino({ level: "silent" }),
) {
  const home = temporaryHome(t);
  const entries = Object.entries(grants).flatMap(([name, roles]) => [
    user(name),
    ...Object.entries(roles).map(([database, role]) => grant(name, database, role)),
  ]);
  const files = {
    "access.toml": `${entries.join("")}${more}`,
    "gateway.toml": `[auth]\naccess_control_file = "access.toml"\n${config}`,
  };
  for (const [name, content] of Object.entries(files)) {
    writeFileSync(path.join(home, name), content, { mode: 0o600 });
  }
  const loaded = loadConfiguration({ cwd: home, env: { HOME: home } });
  const opened = new AsyncDisposableStack();
  t.teardown(() => opened.disposeAsync());
  const options = { log, chosenPassword: undefined, hasTerminal: false };
  return openGateway(loaded, options, opened);
}

/** Starts a server that ends with the test. */
export async function listen(
  t: Test,
  handle: (request: IncomingMessage, response: ServerResponse, body: Buffer) => Promise<void>,
): Promise<string> {
  const server = createServer((request, response) => {
    // As in the gateway, where several parts listen for the end of a stream.
    response.setMaxListeners(24);
    buffer(request)
      .then((body) => handle(request, response, body))
      .catch((error: unknown) => answerError(response, error));
  });
  return `http://127.0.0.1:${await listening(t, server)}/mcp`;
}

function answerError(response: ServerResponse, error: unknown): void {
  if (response.headersSent) {
    response.destroy();
    return;
  }
  const isKnown = error instanceof Refusal;
  response.writeHead(isKnown ? error.status : 500, { "content-type": "application/json" });
  response.end(JSON.stringify({ status: "error", code: isKnown ? error.code : String(error) }));
}

const noSchema: SchemaSource<Exchange> = createSchemaSource<Exchange>({
  upstreams: [],
  visibilityDenial: () => undefined,
});

interface AnsweringOptions {
  /** Answers the query. */
  readonly answer: RequestListener;
  readonly schema?: SchemaSource<Exchange>;
  readonly log?: Logger;
}

/** The URL of an embedded server whose queries an upstream answers. */
export async function openAnswering(
  t: Test,
  { answer, schema = noSchema, log }: AnsweringOptions,
): Promise<string> {
  const upstream = await listening(t, createServer(answer));
  const config = `[upstream]\nurl = "http://127.0.0.1:${upstream}"\n`;
  const { gateway } = await openCore(t, { alice: { "*": "Owner" } }, config, "", log);
  const handle = createEmbeddedMcp(gateway, schema);
  return listen(t, (request, response, body) =>
    handle(exchangeOf(request, response, principalOf("alice")), body),
  );
}

interface EmbeddedSettingOptions {
  readonly grants: Grants;
  readonly rowLimit?: number;
  readonly resultBytes?: number;
  readonly hasSchema?: boolean;
  readonly level?: Level;
  /** TOML of further records of the access file. */
  readonly access?: string;
}

/** The embedded server over a real engine, which tests share one after the other. The caller is `alice`. */
export async function openEmbedded(
  t: Test,
  {
    grants,
    rowLimit = 100,
    resultBytes = 1024 * 1024,
    hasSchema = true,
    level = "full",
    access,
  }: EmbeddedSettingOptions,
) {
  const { engine, ask } = await sharedScene("SQLite");
  const config = `[upstream]
url = "${engine.address}"
[query]
level = "${level}"
[mcp]
row_limit = ${rowLimit}
result_bytes = ${resultBytes}
`;
  const { gateway, features } = await openCore(t, grants, config, access);
  const handle = createEmbeddedMcp(gateway, hasSchema ? features.schema : noSchema);
  const url = await listen(t, (request, response, body) =>
    handle(
      exchangeOf(request, response, endpoint.principal),
      request.method === "POST" ? body : undefined,
    ),
  );
  const endpoint: Endpoint = { url, principal: principalOf("alice") };
  return { endpoint, ask };
}
