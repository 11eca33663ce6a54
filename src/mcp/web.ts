/** Between node:http and the Fetch API that the protocol's library speaks. */
import type { IncomingMessage, ServerResponse } from "node:http";
import { Readable } from "node:stream";
import { pipeline } from "node:stream/promises";

/** Request headers that mean something to the protocol; a credential is not among them. */
const passed = /^(?:accept|content-type|last-event-id|mcp-.*)$/;

/** The request in the Fetch API's form, without its body, aborted when its answer is over. */
export function toWebRequest(request: IncomingMessage, response: ServerResponse): Request {
  const client = new AbortController();
  response.once("close", () => client.abort());
  const headers = new Headers();
  for (const [name, value] of Object.entries(request.headers)) {
    if (passed.test(name) && value !== undefined) headers.set(name, String(value));
  }
  // Only the body and the headers count; where the server is reached is not its concern.
  const { signal } = client;
  return new Request("http://localhost/mcp", { method: request.method ?? "", headers, signal });
}

/**
 * Sends an answer of the Fetch API, at its reader's pace. Headers that are set on the response
 * already stay. Resolves when it has gone out or broken off.
 */
export async function sendWebResponse(answer: Response, response: ServerResponse): Promise<void> {
  if (response.destroyed) {
    await answer.body?.cancel();
    return;
  }
  for (const [name, value] of answer.headers) response.setHeader(name, value);
  if (!response.hasHeader("cache-control")) response.setHeader("Cache-Control", "no-store");
  response.setHeader("X-Content-Type-Options", "nosniff");
  response.writeHead(answer.status);
  if (answer.body === null) {
    response.end();
    return;
  }
  response.flushHeaders();
  try {
    await pipeline(Readable.fromWeb(answer.body), response);
  } catch {
    // Half an answer must not look like a whole one; the pipeline has cut the connection.
  }
}
