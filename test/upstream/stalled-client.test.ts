import { once } from "node:events";
import { createServer } from "node:http";
import t from "tap";
import { createQueryClient } from "../../src/upstream/query-client.ts";
import { QueryLink } from "../../src/upstream/query-link.ts";
import { QueryMetrics } from "../../src/upstream/query-metrics.ts";
import { parseTarget } from "../../src/upstream/target.ts";
import { open } from "../kit/client.ts";
import { listening } from "../kit/listening.ts";
import { RecordingUpstream } from "../kit/upstream.ts";
import { queryFor } from "./asking.ts";

const megabyte = Buffer.alloc(1024 * 1024, "x");

t.test("a client that stops reading gives its connection to the upstream back", async (t) => {
  const upstream = await new RecordingUpstream().listen();
  t.teardown(() => upstream.close());
  const options = {
    target: parseTarget(upstream.url),
    connections: 1,
    connectTimeout: 5000,
    responseTimeout: 10_000,
    clientTimeout: 200,
  };
  const link = new QueryLink(options, new QueryMetrics());
  t.teardown(() => link.close());
  const client = createQueryClient(link);
  const server = createServer((_request, response) => {
    client.forward({ ...queryFor(response), isRead: true });
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
