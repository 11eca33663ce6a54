import { createServer } from "node:http";
import t, { type Test } from "tap";
import { groupEntries, groups, openExternal } from "../bench/peers/external.ts";
import { startGatehouse } from "../bench/peers/gatehouse.ts";
import { columns, rowFilter, withKeys } from "../bench/peers/narrowing.ts";
import { startNode } from "../bench/peers/node.ts";
import { World, writers } from "../bench/peers/world.ts";
import { bestRatio, send } from "./kit/cost.ts";
import { freePort } from "./kit/free-port.ts";
import { temporaryHome } from "./kit/gateway.ts";
import { nightly } from "./kit/nightly.ts";

const REQUESTS = 4000;
/** The measured ratio is about 1.1. Above this, every request has become more expensive. */
const MOST = 1.4;
/** For a query narrowed by columns and a row filter, against one that is not: 1.4 to 1.7. */
const MOST_NARROWED = 1.6;
/** Without groups in the token, groups in the access file cost nothing; the rest is noise. */
const MOST_WITHOUT_GROUPS = 1.1;
/** With 200 groups in the token, against none: about 1.1. */
const MOST_GROUPS = 1.3;
/** Bytes that a request leaves behind for a collection of the whole heap: about 200. */
const MOST_LEFT = 1000;
const body = '{"Select":{"database":"main","from":"users","columns":["id","name"],"limit":10}}';

async function openWorld(t: Test) {
  const upstream = createServer((request, response) => {
    request.resume().once("end", () => response.end('{"status":"success","data":[]}'));
  });
  t.teardown(() => upstream.close());
  const upstreamPort = await freePort();
  upstream.listen(upstreamPort, "127.0.0.1");
  return { world: await World.create(temporaryHome(t)), upstreamPort };
}

t.test("a request costs little more than a proxy without checks", async (t) => {
  const { world, upstreamPort } = await openWorld(t);
  const gatehouse = await startGatehouse(world, upstreamPort);
  t.teardown(() => gatehouse.program.stop());
  const bare = await startNode("bare", world, upstreamPort);
  t.teardown(() => bare.program.stop());
  const tokens = await Promise.all(writers.map((name) => world.token(name)));
  const sent = { path: "/query", body, tokens, requests: REQUESTS };
  const best = await bestRatio(t, [gatehouse, bare], sent, MOST);
  t.ok(best <= MOST, `best ratio ${best.toFixed(2)}, at most ${MOST}`);
});

t.test("a narrowed request costs little more than one that is not", nightly, async (t) => {
  const { world, upstreamPort } = await openWorld(t);
  const gatehouse = await startGatehouse(world, upstreamPort);
  t.teardown(() => gatehouse.program.stop());
  const editAccess = withKeys(`${columns}\n${rowFilter}`);
  const narrowed = await startGatehouse(world, upstreamPort, { editAccess });
  t.teardown(() => narrowed.program.stop());
  const tokens = await Promise.all(writers.map((name) => world.token(name)));
  const sent = { path: "/query", body, tokens, requests: REQUESTS };
  const best = await bestRatio(t, [narrowed, gatehouse], sent, MOST_NARROWED);
  t.ok(best <= MOST_NARROWED, `best ratio ${best.toFixed(2)}, at most ${MOST_NARROWED}`);
});

t.test("groups cost callers without them nothing, and others little", nightly, async (t) => {
  const { world, upstreamPort } = await openWorld(t);
  const external = await openExternal(world);
  const [none, many] = [await external.tokens([]), await external.tokens(groups)];
  const start = async (name: string, more: string) => {
    const editAccess = (text: string) => text + external.entries + more;
    const { config } = external;
    const system = await startGatehouse(world, upstreamPort, { name, editAccess, config });
    t.teardown(() => system.program.stop());
    return system;
  };
  const plain = { ...(await start("no groups", "")), tokens: none };
  const grouped = await start("groups", groupEntries());
  const sent = { path: "/query", body, tokens: none, requests: REQUESTS };
  for (const [tokens, most] of [
    [none, MOST_WITHOUT_GROUPS],
    [many, MOST_GROUPS],
  ] as const) {
    const best = await bestRatio(t, [{ ...grouped, tokens }, plain], sent, most);
    t.ok(best <= most, `best ratio ${best.toFixed(2)}, at most ${most}`);
  }
});

const selector = '{"selector":{"name":"Grace"}}';

for (const { preset, path: asked, body: written, when } of [
  { preset: undefined, path: "/query", body, when: {} },
  { preset: "couchdb", path: "/main/_find", body: selector, when: nightly },
]) {
  const what = preset === undefined ? "a query" : `a request with the preset ${preset}`;
  t.test(`${what} leaves nothing behind for a collection of the whole heap`, when, async (t) => {
    const { world, upstreamPort } = await openWorld(t);
    const options = { nodeFlags: ["--trace-gc"], ...(preset && { preset }) };
    const gatehouse = await startGatehouse(world, upstreamPort, options);
    t.teardown(() => gatehouse.program.stop());
    const tokens = await Promise.all(writers.map((name) => world.token(name)));
    const sent = { path: asked, body: written, tokens, requests: 8000 };
    await send(gatehouse, sent);
    const before = gatehouse.program.output.length;
    await send(gatehouse, sent);
    const left = [
      ...gatehouse.program.output.slice(before).matchAll(/Scavenge .*? -> ([\d.]+) \(/g),
    ];
    const megabytes = left.map(([, size]) => Number(size));
    const growth = megabytes.slice(1).map((size, at) => size - (megabytes[at] ?? 0));
    // The heap shrinks only by a collection of the whole of it.
    const grown = growth.filter((size) => size > -2).reduce((sum, size) => sum + size, 0);
    t.ok(growth.length >= 3, `${growth.length} collections of young objects`);
    const bytes = (grown * 1e6) / sent.requests;
    t.ok(bytes <= MOST_LEFT, `${bytes.toFixed(0)} bytes a request, at most ${MOST_LEFT}`);
  });
}
