import { createServer } from "node:http";
import { mock } from "node:test";
import { setImmediate as nextTurn } from "node:timers/promises";
import t from "tap";
import { Connections } from "../../src/gateway/connections.ts";
import { Exchange } from "../../src/gateway/exchange.ts";
import { createPeerReader } from "../../src/gateway/origins.ts";
import { listening } from "../kit/listening.ts";
import { sentBytes } from "../kit/process-info.ts";
import { Wire, wireRequest } from "../kit/wire.ts";

t.test("a drain answers what came in time, also where it is read only later", async (t) => {
  const server = createServer();
  const connections = new Connections(server, {
    serve: ({ response }) => response.end("answered"),
    finish() {},
    finishBroken() {},
  });
  const readPeer = createPeerReader([], "http");
  server.on("request", (request, response) => {
    const peer = readPeer(request);
    connections.arrive(new Exchange(request, response, peer, []));
  });
  const url = `http://127.0.0.1:${await listening(t, server)}`;
  const wire = await Wire.open(url);
  t.teardown(() => wire.cut());
  const request = wireRequest("GET /", {});
  wire.send(request);
  await wire.until(/answered/);

  mock.timers.enable({ apis: ["setTimeout"] });
  t.teardown(() => mock.timers.reset());
  const drained = connections.drain(60_000);
  while (server.listening) await nextTurn();
  await nextTurn();
  wire.send(request);
  while (sentBytes(wire.socket).unread === 0);
  // As if the process had been busy since.
  mock.timers.tick(1000);
  mock.timers.reset();
  t.match(await wire.untilClosed(), /answered.*Connection: close.*answered/s);
  await drained;
});
