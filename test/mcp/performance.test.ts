import { createServer } from "node:http";
import t from "tap";
import { startOfficial } from "../../bench/mcp/official.ts";
import { startGatehouse } from "../../bench/peers/gatehouse.ts";
import { startNode } from "../../bench/peers/node.ts";
import { World, writers } from "../../bench/peers/world.ts";
import { bestRatio } from "../kit/cost.ts";
import { freePort } from "../kit/free-port.ts";
import { temporaryHome } from "../kit/gateway.ts";
import { nightly } from "../kit/nightly.ts";
import { statelessCall } from "./messages.ts";

const select = { database: "main", from: "users", columns: ["id"], limit: 10 };
const { headers, body } = statelessCall("tools/call", { name: "select", arguments: select });
const answer = '{"status":"success","data":[{"id":1}]}';

t.test("a tool call costs little more than the bare server", nightly, async (t) => {
  const upstream = createServer((request, response) => {
    request.resume().once("end", () => {
      response.setHeader("content-type", "application/json").end(answer);
    });
  });
  t.teardown(() => upstream.close());
  const port = await freePort();
  upstream.listen(port, "127.0.0.1");
  const world = await World.create(temporaryHome(t));
  const rule = '[[mcp.tools]]\nname = "select"\npermission = "SELECT"\ndatabase = "main"';
  const mcp = `upstream = "http://127.0.0.1:${port}/mcp"\n${rule}`;
  const proxy = await startGatehouse(world, port, { mcp });
  t.teardown(() => proxy.program.stop());
  const embedded = await startGatehouse(world, port, { mcp: "" });
  t.teardown(() => embedded.program.stop());
  const bare = await startNode("bare", world, port);
  t.teardown(() => bare.program.stop());
  const official = await startOfficial(port);
  t.teardown(() => official.program.stop());
  const tokens = await Promise.all(writers.map((name) => world.token(name)));
  const sent = { path: "/mcp", headers, body, tokens, requests: 1500 };

  for (const [what, system, floor, most] of [
    // Measured: about 1.8 times a plain forward, 13 with a connection for each call.
    ["proxied", proxy, bare, 3],
    // Measured: about 1.4 times the bare official server, 2 with every tool registered per call.
    ["embedded", embedded, official, 1.8],
  ] as const) {
    const best = await bestRatio(t, [system, floor], sent, most);
    t.ok(best <= most, `${what}: best ratio ${best.toFixed(2)}, at most ${most}`);
  }
});
