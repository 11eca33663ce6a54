import type { ServerResponse } from "node:http";
import type { BackendOptions } from "../../src/upstream/backend.ts";
import { QueryMetrics } from "../../src/upstream/query-client.ts";
import { fieldLines } from "../../src/upstream/query-form.ts";
import { PATIENCE_MS } from "../kit/eventually.ts";

/** How the backends of tests are reached, unless the test says otherwise. */
export function backendOptions(options: Partial<BackendOptions>): BackendOptions {
  return {
    connections: 8,
    connectTimeout: PATIENCE_MS,
    responseTimeout: PATIENCE_MS,
    healthPath: "",
    // Only the check at the start: all else is told by the queries.
    healthInterval: 3_600_000,
    authorization: undefined,
    metrics: new QueryMetrics(),
    onChange() {},
    ...options,
  };
}

/** What is common to queries of tests that are forwarded for the client of a plain server. */
export function queryFor(response: ServerResponse) {
  const sink = { response, whenClosed: undefined as (() => void) | undefined };
  response.on("close", () => sink.whenClosed?.());
  return {
    sink,
    user: "alice",
    body: Buffer.from("{}"),
    fields: fieldLines({ "content-type": "application/json" }),
    answerHeaders: [],
    fail(error: unknown) {
      const code = error instanceof Error && "code" in error ? String(error.code) : "unknown";
      response.writeHead(502).end(code);
    },
  };
}
