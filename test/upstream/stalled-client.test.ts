import { once } from "node:events";
import { createServer } from "node:http";
import t from "tap";
import { BackendGroup } from "../../src/upstream/backends.ts";
import { parseTarget } from "../../src/upstream/target.ts";
import { open } from "../kit/client.ts";
import { listening } from "../kit/listening.ts";
import { RecordingUpstream } from "../kit/upstream.ts";
import { backendOptions, queryFor } from "./asking.ts";

const megabyte = Buffer.alloc(1024 * 1024, "x");

t.test("a client that stops reading gives its connection to the upstream back", async (t) => {
  const upstream = await new RecordingUpstream().listen();
  t.teardown(() => upstream.close());
  const options = backendOptions({ connections: 1, clientTimeout: 200 });
  const group = new BackendGroup([parseTarget(upstream.url)], options);
  t.teardown(() => group.close());
  const server = createServer((_request, response) => {
    group.forward(...queryFor(response, {}));
  });
  const url = `http://127.0.0.1:${await listening(t, server)}`;

  upstream.answer = (_, response) => {
    for (let count = 0; count < 50; count++) response.write(megabyte);
    response.end();
  };
  const stalled = await open(url);
  upstream.answer = (_, response) => response.end("{}");
  const next = await open(url);
  t.equal(next.statusCode, 200, "the next query has its turn");
  next.resume();
  stalled.resume();
  await t.rejects(once(stalled, "end"), { code: "ECONNRESET" }, "and the answer is cut, not ended");
});
