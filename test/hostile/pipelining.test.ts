import type { ServerResponse } from "node:http";
import t from "tap";
import { eventually } from "../kit/eventually.ts";
import { insert } from "../kit/queries.ts";
import { Wire } from "../kit/wire.ts";
import { openSite, sendBytes, statusesOf, through } from "./kit.ts";

const site = await openSite(t);
const { gateway, witness, query, route } = site;
const kept = (body = query.body) => ({ head: `Content-Length: ${body.length}\r\n`, body });
const bye = "GET /healthz HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n";

/** Holds the upstream's answers back. */
function hold() {
  const { answer } = witness;
  const held: { url: string; response: ServerResponse }[] = [];
  witness.answer = ({ url }, response) => held.push({ url, response });
  return {
    held,
    release() {
      witness.answer = answer;
    },
  };
}

t.test("requests sent at one time are answered in order, one after the other", async (t) => {
  const { held, release } = hold();
  t.teardown(release);
  const wire = await Wire.open(gateway.url);
  const line = (at: number) => ({ ...kept(), line: `POST /db/main/stats?${at}` });
  wire.send([0, 1, 2].map((at) => through(route, line(at))).join("") + bye);
  for (let at = 0; at < 3; at++) {
    await eventually(`request ${at} goes up`, () => held.length === at + 1);
    t.equal(held[at]?.url, `/db/main/stats?${at}`);
    t.equal(statusesOf(wire.text).length, at, "and those behind it wait");
    held[at]?.response.end(`answer ${at}`);
  }
  t.match(await wire.untilClosed(), /answer 0.*answer 1.*answer 2.*"version"/s);
});

t.test("each is judged by itself, and by what those before it have done", async (t) => {
  witness.take();
  const token = await gateway.login();
  const bearer = { ...query.headers, Authorization: `Bearer ${token}` };
  const mine = { ...query, headers: bearer };
  const stranger = { ...query, headers: { "Content-Type": "application/json" } };
  const bytes = [
    through(mine, kept()),
    through(stranger, kept()),
    through(mine, kept("{}")),
    through(mine, { line: "GET /nowhere", head: "", body: "" }),
    through(mine, kept(insert)),
    through(mine, { line: "POST /logout", head: "", body: "" }),
    through(mine, kept()),
    bye,
  ];
  const text = await sendBytes(site, bytes.join(""));
  t.strictSame(statusesOf(text), [200, 401, 400, 404, 200, 200, 401, 200]);
  t.match(text, /token_revoked/, "a token ends with its logout, also for what was sent already");
  const up = witness.take().map(({ body }) => body.toString());
  t.strictSame(up, [query.body, insert]);
});

t.test("behind a refusal that leaves a body unread, nothing is a request", async (t) => {
  witness.takeBytes();
  const stranger = { ...query, headers: { "Content-Type": "application/json" } };
  const rest = through(query);
  const lefts = [
    through(stranger, {
      head: `Content-Length: ${rest.length}\r\nExpect: 100-continue\r\n`,
      body: "",
    }),
    through(query, { head: "Content-Length: 20000000\r\n", body: "" }),
    through(stranger, { head: "Transfer-Encoding: chunked\r\n", body: "" }),
    through(query, { head: "Expect: 100-continue\r\nContent-Length: 20000000\r\n", body: "" }),
  ];
  for (const left of lefts) {
    const text = await sendBytes(site, left + rest);
    t.equal(statusesOf(text).length, 1, text.slice(0, 12));
    t.match(text, /^Connection: close\r$/m);
  }
  t.equal(witness.takeBytes(), "");
});

t.test("what is no request waits for its turn, and takes no answer away", async (t) => {
  const { held, release } = hold();
  t.teardown(release);
  const cases = [
    "garbage\r\n\r\n",
    "CONNECT x:1 HTTP/1.1\r\nHost: x:1\r\n\r\n",
    "GET / HTTP/1.1\r\n\r\n",
  ];
  for (const [at, junk] of cases.entries()) {
    const wire = await Wire.open(gateway.url);
    wire.send(through(route, kept()) + junk);
    await eventually("the first goes up", () => held.length === at + 1);
    held[at]?.response.end("answer");
    t.strictSame(statusesOf(await wire.untilClosed()), [200, 400], JSON.stringify(junk));
  }
});

t.test("what follows on a connection that was to end is not read", async (t) => {
  witness.take();
  const text = await sendBytes(site, through(query) + through(query, kept()));
  t.strictSame(statusesOf(text), [200]);
  t.equal(witness.take().length, 1);
});

t.test("who sends request after request without reading costs one of them", async (t) => {
  const { held, release } = hold();
  t.teardown(release);
  const before = witness.connections;
  const wire = await Wire.open(gateway.url);
  wire.send("GET /open HTTP/1.1\r\nHost: x\r\n\r\n".repeat(60));
  await eventually("the first goes up", () => held.length === 1);
  await sendBytes(site, bye);
  t.equal(held.length, 1);
  t.equal(witness.connections - before, 1, "one connection to the upstream, however many wait");
  wire.send("GET /open HTTP/1.1\r\nHost: x\r\n\r\n".repeat(10));
  t.equal(await wire.untilClosed(), "", "and who goes on is cut");
  await eventually("the upstream sees it", () => held[0]?.response.destroyed === true);
  t.equal(held.length, 1, "none of those that waited goes up");
});

t.test("requests that wait on a connection are forgotten with it", async (t) => {
  const config = "[server]\nmax_body_bytes = 65536\nmax_buffered_bytes = 65536\n";
  const small = await openSite(t, { config });
  const { answer } = small.witness;
  let asked = 0;
  small.witness.answer = () => asked++;
  const large = query.body.padEnd(30_000);
  const mine = small.query;
  for (let round = 1; round <= 6; round++) {
    const wire = await Wire.open(small.gateway.url);
    wire.send(through(mine, kept(large)).repeat(2));
    await eventually("the first goes up", () => asked === round);
    wire.cut();
  }
  small.witness.answer = answer;
  await eventually("what they held is given back", async () => {
    const head = `Content-Length: 60000\r\nConnection: close\r\n`;
    const text = await sendBytes(small, through(mine, { head, body: query.body.padEnd(60_000) }));
    return statusesOf(text)[0] === 200;
  });
});
