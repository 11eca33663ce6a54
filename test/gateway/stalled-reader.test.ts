import { createServer, type ServerResponse } from "node:http";
import { buffer } from "node:stream/consumers";
import t from "tap";
import { cutWhenStalled } from "../../src/gateway/stream-limits.ts";
import { open } from "../kit/client.ts";
import { listening } from "../kit/listening.ts";

/** More than the buffers of a connection take. */
const whole = Buffer.alloc(50 * 1024 * 1024, "x");

t.test("an answer of which the client takes nothing is cut", async (t) => {
  const cut = Promise.withResolvers<ServerResponse>();
  const server = createServer((_request, response) => {
    cutWhenStalled(response, 600);
    response.once("close", () => cut.resolve(response));
    response.end(whole);
  });
  const url = `http://127.0.0.1:${await listening(t, server)}`;
  const stalled = await open(url);
  const response = await cut.promise;
  t.notOk(response.writableFinished);
  await t.rejects(buffer(stalled), { code: "ECONNRESET" }, "the client sees that it is not whole");
});
