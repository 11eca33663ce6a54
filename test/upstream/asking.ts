import type { ServerResponse } from "node:http";
import { ParsedOperations } from "../../src/core/query/query.ts";
import { type AnswerSink, ClientAnswer } from "../../src/core/upstream/answer-stream.ts";
import type { BackendOptions } from "../../src/core/upstream/backends.ts";
import { type DatabaseQuery, QueryMetrics } from "../../src/core/upstream/database.ts";
import { fieldLines } from "../../src/core/upstream/headers.ts";
import { PATIENCE_MS } from "../kit/eventually.ts";

export function backendOptions(options: Partial<BackendOptions>): BackendOptions {
  return {
    connections: 8,
    connectTimeoutMs: PATIENCE_MS,
    responseTimeoutMs: PATIENCE_MS,
    healthPath: "",
    // Only one check, at the start.
    healthIntervalMs: 3_600_000,
    credential: undefined,
    metrics: new QueryMetrics(),
    onChange() {},
    ...options,
  };
}

export const plainQuery: DatabaseQuery = {
  user: "alice",
  authorizeAgain: undefined,
  requestId: "r",
  query: {
    batch: false,
    accesses: [],
    operations: new ParsedOperations(Buffer.from("{}"), false, []),
  },
  body: Buffer.from("{}"),
  fields: fieldLines({ "content-type": "application/json" }),
  isRead: true,
  limits: [],
  seesSchema: true,
};

/** A query, and a sink that streams the response to the client of a plain server. */
export function queryFor(
  response: ServerResponse,
  query: Partial<DatabaseQuery>,
): [DatabaseQuery, AnswerSink] {
  const sink = new ClientAnswer({
    response,
    addedHeaders: [],
    fail(error: unknown) {
      const code = error instanceof Error && "code" in error ? String(error.code) : "unknown";
      response.writeHead(502).end(code);
    },
  });
  return [{ ...plainQuery, ...query }, sink];
}
