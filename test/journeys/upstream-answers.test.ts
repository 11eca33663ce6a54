/** What an upstream may answer instead of an answer, and what becomes of it. */
import t, { type Test } from "tap";
import { eventually } from "../kit/eventually.ts";
import { startGateway } from "../kit/gateway.ts";
import { queryHeaders } from "../kit/queries.ts";
import { RawUpstream, wireAnswer } from "../kit/raw-upstream.ts";
import { Wire, wireRequest } from "../kit/wire.ts";
import {
  asking,
  broken,
  cut,
  cutEarly,
  ending,
  idIn,
  type Misbehaviour,
  odd,
  open,
} from "./misbehaving.ts";

const get = "GET /public HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n";

async function scene(t: Test, config = "") {
  let misbehave: Misbehaviour = (socket, right) => socket.write(right);
  const upstream = await new RawUpstream((socket, request) => {
    misbehave(socket, wireAnswer(JSON.stringify(idIn(request))));
  }).listen();
  t.teardown(() => upstream.close());
  const gateway = await startGateway(t, { upstream: upstream.url, config });
  const token = await gateway.login();
  let count = 0;

  /** Asks while the upstream misbehaves; how often the query reached it, and what came back. */
  async function meet(how: Misbehaviour, operation: "Select" | "Insert", request?: string) {
    misbehave = how;
    const id = `id-${++count}`;
    const wire = await Wire.open(gateway.url);
    const headers = { ...queryHeaders(token), Connection: "close" };
    wire.send(request ?? wireRequest("POST /query", headers, asking(id, operation)));
    const text = await wire.untilClosed();
    const carriedOut = upstream.requests.filter((request) => idIn(request) === id).length;
    return { id, text, carriedOut };
  }

  /** Asks a well-behaved upstream again: what came before must not be in the answer. */
  async function recovers(t: Test): Promise<void> {
    const { id, text } = await meet((socket, right) => socket.write(right), "Insert");
    t.ok(text.startsWith("HTTP/1.1 200 ") && text.endsWith(`"${id}"`), "the next answer is right");
  }
  return { upstream, gateway, meet, recovers };
}

const { upstream, meet, recovers } = await scene(t, open);

t.test("what is no answer is 502, was carried out once, and spoils no other", async (t) => {
  for (const [name, how] of Object.entries({ ...broken, ...cutEarly })) {
    for (const operation of ["Select", "Insert"] as const) {
      const { text, carriedOut } = await meet(how, operation);
      t.match(text, /^HTTP\/1\.1 502 .*"code":"upstream_broken"/s, `${operation}: ${name}`);
      t.equal(carriedOut, 1, "something had come back: it is not sent again");
    }
    await recovers(t);
  }
});

t.test("an answer that breaks off is cut for the client too, and never sent again", async (t) => {
  for (const [name, how] of Object.entries(cut)) {
    const { text, carriedOut } = await meet(how, "Select");
    const isWhole = /\r\n0\r\n\r\n$/.test(text) || text.endsWith("\r\n\r\nhalf");
    const saysLength = /^content-length: 100/im.test(text);
    t.ok(!isWhole || saysLength || /^HTTP\/1\.1 502/.test(text), name);
    t.equal(carriedOut, 1);
    await recovers(t);
  }
});

t.test("what comes behind an answer is nobody's answer", async (t) => {
  for (const [name, how] of Object.entries(odd)) {
    const { id, text, carriedOut } = await meet(how, "Insert");
    t.match(text, new RegExp(`^HTTP/1\\.1 200 .*\r\n\r\n"${id}"$`, "s"), name);
    t.equal(carriedOut, 1);
    await recovers(t);
  }
});

t.test("an answer that nobody asked for ends the connection that it came on", async (t) => {
  const closed = upstream.closed;
  const { id, text } = await meet((socket, right) => {
    socket.write(right);
    setTimeout(() => socket.write(wireAnswer('"forged"')), 50);
  }, "Insert");
  t.ok(text.endsWith(`"${id}"`));
  await eventually("the connection is given up", () => upstream.closed > closed);
  await recovers(t);
});

const contents: Record<string, string> = {
  "204 with a length": "HTTP/1.1 204 No Content\r\nContent-Length: 6\r\n\r\nforged",
  "204 with a length of 0": "HTTP/1.1 204 No Content\r\nContent-Length: 0\r\n\r\n",
  "204 with chunks": "HTTP/1.1 204 No Content\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
  "205 with a body": "HTTP/1.1 205 Reset Content\r\nContent-Length: 6\r\n\r\nforged",
  "205 with a chunk":
    "HTTP/1.1 205 Reset Content\r\nTransfer-Encoding: chunked\r\n\r\n6\r\nforged\r\n0\r\n\r\n",
  "205 and bytes to the end": "HTTP/1.1 205 Reset Content\r\n\r\nforged",
};

const empty: Record<string, string> = {
  "204": "HTTP/1.1 204 No Content\r\n\r\n",
  "205": "HTTP/1.1 205 Reset Content\r\nContent-Length: 0\r\n\r\n",
  "205 without chunks": "HTTP/1.1 205 Reset Content\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
  "205 to the end": "HTTP/1.1 205 Reset Content\r\nConnection: close\r\n\r\n",
  "304": "HTTP/1.1 304 Not Modified\r\nETag: a\r\nContent-Length: 6\r\n\r\n",
};

t.test("content under a status that has none is 502, on every way", async (t) => {
  for (const [name, answer] of Object.entries(contents)) {
    for (const request of [undefined, get]) {
      const { text } = await meet(ending(answer), "Insert", request);
      t.match(text, /^HTTP\/1\.1 502 .*"code":"upstream_broken"/s, name);
      t.notMatch(text, "forged");
      await recovers(t);
    }
  }
});

t.test("an answer without content stays one", async (t) => {
  for (const [name, answer] of Object.entries(empty)) {
    for (const request of [undefined, get]) {
      const { text } = await meet(ending(answer), "Insert", request);
      t.match(text, `HTTP/1.1 ${name.slice(0, 3)} `, name);
      t.match(text, /\r\n\r\n(?:0\r\n\r\n)?$/);
      t.notMatch(text, /content-length: [^0]/i);
      await recovers(t);
    }
  }
  for (const body of ["204 No Content", "304 Not Modified"]) {
    const { text } = await meet(ending(`HTTP/1.1 ${body}\r\n\r\nforged`), "Insert");
    t.notMatch(text, "forged");
    await recovers(t);
  }
});

t.test("a 304 says the length of what it spares to whoever asked on a condition", async (t) => {
  const { "304": unchanged = "" } = empty;
  const conditional = `GET /public HTTP/1.1\r\nHost: x\r\nConnection: close\r\nIf-None-Match: "a"\r\n\r\n`;
  const { text } = await meet(ending(unchanged), "Select", conditional);
  t.match(text, /^HTTP\/1\.1 304 .*Content-Length: 6\r\n/s);
  const post = conditional.replace("GET", "POST");
  t.notMatch((await meet(ending(unchanged), "Select", post)).text, /content-length/i);
});

t.test("interim answers do not put off the end of the wait", async (t) => {
  const { meet, recovers } = await scene(t, "response_timeout = 1\n");
  const { text, carriedOut } = await meet((socket) => {
    const timer = setInterval(() => socket.write("HTTP/1.1 102 Processing\r\n\r\n"), 100);
    socket.once("close", () => clearInterval(timer));
  }, "Insert");
  t.match(text, /^HTTP\/1\.1 504 .*"code":"upstream_timeout"/s);
  t.equal(carriedOut, 1);
  await recovers(t);
});
