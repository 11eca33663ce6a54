import { once } from "node:events";
import { createServer, type IncomingMessage, type ServerResponse } from "node:http";
import type { Logger } from "pino";
import { ClientError } from "../../src/core/base/client-error.ts";
import { keepDigits, parseUnrounded } from "../../src/core/json/exact.ts";
import { createGrammar } from "../../src/core/query/grammar.ts";
import { parseQuery } from "../../src/core/query/parse.ts";
import { isReadOnly } from "../../src/core/query/query.ts";
import { ClientAnswer } from "../../src/core/upstream/answer-stream.ts";
import { QueryMetrics } from "../../src/core/upstream/database.ts";
import { EngineDatabase } from "../../src/engine/database.ts";
import { openEngineStore, type StoreOptions } from "../../src/engine/open.ts";

export interface EngineOptions extends Omit<StoreOptions, "log" | "isGuest" | "poolSize"> {
  readonly log: Logger;
}

export interface Engine {
  readonly address: string;
  close(): Promise<void>;
}

const grammar = createGrammar({ extraFields: [], operations: {} });
/** No test waits for it, and no query reaches it on a busy machine. */
const PATIENCE_MS = 5 * 60_000;

/**
 * Serves the engine over HTTP without authentication, so that its tests need no users. The header
 * `x-test-limits` holds the limits that a decision would set, `x-test-narrowed` hides the schema, and
 * the answer's `x-test-report` tells what the engine reports.
 */
export async function startEngine({
  queryTimeLimit = PATIENCE_MS,
  ...options
}: EngineOptions): Promise<Engine> {
  const store = await openEngineStore({ ...options, queryTimeLimit, poolSize: 16 });
  const database = new EngineDatabase(store, {
    name: "test",
    connections: 1000,
    waitTimeoutMs: PATIENCE_MS,
    metrics: new QueryMetrics(),
    log: options.log,
  });
  const server = createServer((request, response) => {
    serve(database, request, response).catch((error: unknown) => fail(response, error));
  });
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  const address = server.address();
  const port = typeof address === "object" ? address?.port : undefined;
  return {
    address: `http://127.0.0.1:${port}`,
    async close() {
      server.close();
      await database.close();
      server.closeAllConnections();
    },
  };
}

async function serve(
  database: EngineDatabase,
  request: IncomingMessage,
  response: ServerResponse,
): Promise<void> {
  const { headers, url = "" } = request;
  const requestId = "test";
  const sink = new ClientAnswer({
    response,
    addedHeaders: [],
    fail: (error) => fail(response, error),
  });
  if (url === "/healthz") {
    response.writeHead((await database.isUp()) ? 200 : 503).end();
    return;
  }
  const common = { user: "test", requestId, fields: "", authorizeAgain: undefined };
  if (url.startsWith("/schema")) {
    const schema = url.split("/").slice(2);
    database.run({ ...common, schema }, sink);
    return;
  }
  const chunks: Buffer[] = [];
  for await (const chunk of request) chunks.push(chunk);
  const body = Buffer.concat(chunks);
  const query = parseQuery(body, grammar);
  database.run(
    {
      ...common,
      query,
      body,
      isRead: isReadOnly(query),
      limits: parseUnrounded(String(headers["x-test-limits"] ?? "[]"), keepDigits),
      seesSchema: headers["x-test-narrowed"] === undefined,
      accept: headers.accept,
      report: (report) => response.setHeader("x-test-report", JSON.stringify(report)),
    },
    sink,
  );
}

function fail(response: ServerResponse, error: unknown): void {
  if (!(error instanceof ClientError)) {
    response.writeHead(500).end(String(error));
    return;
  }
  const { status, code, message } = error;
  response.writeHead(status, { "content-type": "application/json" });
  response.end(JSON.stringify({ status: "error", message, code }));
}
