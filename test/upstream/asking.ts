import type { ServerResponse } from "node:http";
import { fieldLines } from "../../src/upstream/http1/field-lines.ts";

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
