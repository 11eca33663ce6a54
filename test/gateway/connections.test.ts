import { createServer, type ServerResponse } from "node:http";
import { pipeline, Readable } from "node:stream";
import { buffer } from "node:stream/consumers";
import { setTimeout } from "node:timers/promises";
import t, { type Test } from "tap";
import { limitAnswers } from "../../src/core/http/connections.ts";
import { staffedHome, tokenOf } from "../journeys/staff.ts";
import { open } from "../kit/client.ts";
import { startGateway } from "../kit/gateway.ts";
import { listening } from "../kit/listening.ts";

/** More than the buffers of a connection hold. */
const whole = Buffer.alloc(50 * 1024 * 1024, "x");

/** @returns a list: an answer in it is cut once its client has read nothing for 600 ms */
function limited(t: Test): { response: ServerResponse }[] {
  const answers: { response: ServerResponse }[] = [];
  const timer = limitAnswers(
    () => answers,
    () => {},
    600,
  );
  t.teardown(() => clearInterval(timer));
  return answers;
}

t.test("a response that the client does not read is cut", async (t) => {
  const cut = Promise.withResolvers<ServerResponse>();
  const answers = limited(t);
  const server = createServer((_request, response) => {
    answers.push({ response });
    response.once("close", () => cut.resolve(response));
    response.end(whole);
  });
  const url = `http://127.0.0.1:${await listening(t, server)}`;
  const stalled = await open(url);
  const response = await cut.promise;
  t.notOk(response.writableFinished);
  await t.rejects(
    buffer(stalled),
    { code: "ECONNRESET" },
    "the client notices that it is incomplete",
  );
});

t.test("a response that the client reads slowly is not cut", async (t) => {
  const answers = limited(t);
  const server = createServer((_request, response) => {
    answers.push({ response });
    pipeline(Readable.from(Array(200).fill(whole.subarray(0, 65_536))), response, () => {});
  });
  const slow = await open(`http://127.0.0.1:${await listening(t, server)}`);
  let length = 0;
  let pauses = 0;
  for await (const piece of slow) {
    length += piece.length;
    // Longer in all than a client may read nothing.
    if (length > pauses * 2_000_000) {
      pauses++;
      await setTimeout(250);
    }
  }
  t.equal(length, 200 * 65_536);
});

t.test("concurrent requests are each judged by their own token", async (t) => {
  const names = Array.from({ length: 20 }, (_, at) => `user${at}`);
  const home = await staffedHome(
    t,
    names.map((name) => `${name} main ReadOnly`),
  );
  const gateway = await startGateway(t, { home, upstream: "http://127.0.0.1:1" });
  const tokens = await Promise.all(names.map((name) => tokenOf(gateway, name)));
  const answers = tokens.flatMap((token, at) => [
    { token, expected: { user: { username: names[at] } } },
    { token: `${token.slice(0, -9)}${token.slice(-8)}`, expected: { code: "token_invalid" } },
  ]);
  const requests = answers.map(async ({ token, expected }) => {
    const headers = { authorization: `Bearer ${token}` };
    const response = await fetch(`${gateway.url}/api/me`, { headers });
    t.match(await response.json(), expected);
  });
  await Promise.all(requests);
});
