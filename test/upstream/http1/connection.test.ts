import type { Socket } from "node:net";
import { setTimeout as wait } from "node:timers/promises";
import * as fc from "fast-check";
import t from "tap";
import { ConnectionPool } from "../../../src/upstream/http1/connection.ts";
import { parseTarget } from "../../../src/upstream/target.ts";
import { eventually, PATIENCE_MS } from "../../kit/eventually.ts";
import { sentBytes } from "../../kit/process-info.ts";
import { wireAnswer } from "../../kit/raw-upstream.ts";
import { ask, askNode, connected, Gathered } from "./kit.ts";

t.test("answers come back whole, one after the other on one connection", async (t) => {
  const { upstream, pool } = await connected(t, (socket, request) => {
    socket.write(wireAnswer(request.slice(request.indexOf("\r\n\r\n") + 4)));
  });
  for (const body of ["one", "", "three"]) t.match(await ask(pool, body), { status: 200, body });
  t.equal(upstream.connections, 1);
});

t.test("requests that are written in one turn arrive each as it is", async (t) => {
  const { upstream, pool } = await connected(t, (socket, request) => {
    socket.write(wireAnswer(request.slice(request.indexOf("\r\n\r\n") + 4)));
  });
  const bodies = Array.from({ length: 40 }, (_, at) => `${at} `.repeat(at * at * 4));
  for (let turn = 0; turn < 2; turn++) {
    const answers = await Promise.all(bodies.map((body) => ask(pool, body)));
    t.strictSame(
      answers.map(({ body }) => body),
      bodies,
    );
  }
  t.equal(upstream.connections, 40);
});

t.test("chunks are put together, their extensions and trailers dropped", async (t) => {
  const wire = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";
  const { upstream, pool } = await connected(t, (socket) => {
    socket.write(`${wire}3;a=b\r\nabc\r\n00a \r\n0123456789\r\n0\r\nX-Trailer: 1\r\n\r\n`);
  });
  for (let turn = 0; turn < 2; turn++) t.match(await ask(pool), { body: "abc0123456789" });
  t.equal(upstream.connections, 1);
});

t.test("without a length the answer ends with its connection", async (t) => {
  const { upstream, pool } = await connected(t, (socket) => {
    socket.end("HTTP/1.0 200 OK\r\n\r\nall of it");
  });
  for (let turn = 0; turn < 2; turn++) t.match(await ask(pool), { body: "all of it" });
  t.equal(upstream.connections, 2);
});

t.test("interim answers are told of and passed over", async (t) => {
  const { pool } = await connected(t, (socket) => {
    socket.write(`HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 -\r\nA: b\r\n\r\n${wireAnswer("x")}`);
  });
  t.match(await ask(pool), { status: 200, interim: 2, body: "x" });
});

const chunked = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";
const brokenAnswers = {
  "what is no HTTP": "SSH-2.0-server\r\n\r\n",
  "a head without end": `HTTP/1.1 200 OK\r\nA: ${"a".repeat(17_000)}`,
  "an upgrade that nobody asked for": "HTTP/1.1 101 Switching\r\n\r\n",
  "a chunk's size in words": `${chunked}ten\r\n0123456789\r\n0\r\n\r\n`,
  "a chunk's size with a sign": `${chunked}+3\r\nabc\r\n0\r\n\r\n`,
  "a chunk's size past counting": `${chunked}fffffffffffff\r\nabc`,
  "an empty size": `${chunked}\r\nabc\r\n0\r\n\r\n`,
  "a bare LF behind a size": `${chunked}3\nabc\r\n0\r\n\r\n`,
  "a chunk that is too long": `${chunked}3\r\nabcd\r\n0\r\n\r\n`,
  "a size line without end": `${chunked}3;${"a".repeat(2000)}`,
  "a trailer that is none": `${chunked}0\r\nno trailer\r\n\r\n`,
  "trailers without end": `${chunked}0\r\n${`A: ${"a".repeat(900)}\r\n`.repeat(20)}`,
};
for (const [what, wire] of Object.entries(brokenAnswers)) {
  t.test(`${what} ends the connection with an error`, async (t) => {
    const { upstream, pool } = await connected(t, (socket) => void socket.write(wire));
    const { error } = await ask(pool);
    t.match(error, { name: "BrokenAnswerError" });
    t.ok((await ask(pool)).error, "and the next request has a connection of its own");
    t.equal(upstream.connections, 2);
  });
}

t.test("what comes behind an answer is no answer to the next request", async (t) => {
  const { upstream, pool } = await connected(t, (socket, _request, connection) => {
    socket.write(wireAnswer(`mine ${connection}`) + wireAnswer("stray"));
  });
  t.match(await ask(pool), { body: "mine 1" });
  t.match(await ask(pool), { body: "mine 2" });
  t.equal(upstream.connections, 2);
});

t.test("what comes on an idle connection ends it", async (t) => {
  const sockets: Socket[] = [];
  const { upstream, pool } = await connected(t, (socket, _request, connection) => {
    socket.write(wireAnswer(`mine ${connection}`));
    sockets.push(socket);
  });
  t.match(await ask(pool), { body: "mine 1" });
  const [first] = sockets;
  first?.write(wireAnswer("stray"));
  await eventually("it is closed", () => first?.closed === true);
  t.match(await ask(pool), { body: "mine 2" });
  t.equal(upstream.connections, 2);
});

t.test("what has come before a request is written is no answer to it", async (t) => {
  const sockets: Socket[] = [];
  const { upstream, pool } = await connected(t, (socket, _request, connection) => {
    socket.write(wireAnswer(`mine ${connection}`));
    sockets.push(socket);
  });
  t.match(await ask(pool), { body: "mine 1" });
  // From a timer on, what has arrived is read before anything is written.
  await wait(1);
  sockets[0]?.write(wireAnswer("stray"));
  // Where the system is busy it has not arrived by the time that it is written.
  while (sockets[0] !== undefined && sentBytes(sockets[0]).unread === 0);
  t.match(await ask(pool), { error: { failure: "closed" } });
  t.match(await ask(pool), { body: "mine 2" });
  t.equal(upstream.requests.length, 2, "the one in between was never sent");
});

t.test("whoever is told of an answer's end has its connection", async (t) => {
  const { upstream, pool } = await connected(t, (socket) => void socket.write(wireAnswer("x")));
  class Asking extends Gathered {
    next: ReturnType<typeof ask> | undefined;
    override onEnd(last: Buffer | undefined): void {
      this.next = ask(pool);
      super.onEnd(last);
    }
  }
  const first = new Asking();
  pool.take().send("POST / HTTP/1.1\r\nHost: x\r\n\r\n", Buffer.from(""), first);
  t.match(await first.read, { body: "x" });
  t.match(await first.next, { body: "x" });
  t.equal(upstream.connections, 1);
});

t.test("a connection is not used up to the moment at which the upstream ends it", async (t) => {
  const { upstream, pool } = await connected(t, (socket) => {
    socket.write(wireAnswer("x", "Keep-Alive: timeout=1\r\n"));
  });
  await ask(pool);
  await ask(pool);
  t.equal(upstream.connections, 2);
});

t.test("an answer that breaks off is an error, also in the middle of a chunk", async (t) => {
  const starts = ["HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhalf", `${chunked}9\r\nhalf`];
  for (const start of starts) {
    const { pool } = await connected(t, (socket) => void socket.end(start));
    t.match(await ask(pool), { status: 200, body: "half", error: { failure: "closed" } });
  }
});

t.test("an answer before the request was sent is given, and the connection ended", async (t) => {
  const { upstream, pool } = await connected(t, () => {});
  let connections = 0;
  upstream.server.on("connection", (socket) => {
    connections++;
    socket.write(wireAnswer("early"));
  });
  const answer = await ask(pool, "x".repeat(30_000_000));
  t.match(answer, { body: "early" });
  await ask(pool);
  t.equal(connections, 2);
});

t.test("an upstream that says nothing in time is an error", async (t) => {
  const upstream = await connected(t, () => {});
  const pool = new ConnectionPool(parseTarget(upstream.upstream.url), {
    connect: PATIENCE_MS,
    response: 100,
  });
  t.teardown(() => pool.close());
  t.match(await ask(pool), { error: { failure: "response-timeout" } });
});

t.test("a head that comes a byte at a time has no more time than another", async (t) => {
  const { upstream } = await connected(t, (socket) => {
    const timer = setInterval(() => socket.write("H"), 40);
    socket.once("close", () => clearInterval(timer));
  });
  const pool = new ConnectionPool(parseTarget(upstream.url), {
    connect: PATIENCE_MS,
    response: 200,
  });
  t.teardown(() => pool.close());
  t.match(await ask(pool), { error: { failure: "response-timeout" } });
});

t.test("nothing is sent for whoever has left before the connection stood", async (t) => {
  const { upstream, pool } = await connected(t, (socket) => void socket.write(wireAnswer("x")));
  const connection = pool.take();
  const gathered = new Gathered();
  connection.send("POST / HTTP/1.1\r\nHost: x\r\n\r\n", Buffer.from(""), gathered);
  connection.abort(new Error("gone"));
  t.match(await gathered.read, { error: { message: "gone" } });
  await ask(pool);
  t.equal(upstream.requests.length, 1);
});

/** Bytes of an answer that is well-formed, or nearly. */
const wires = fc
  .record({
    head: fc.constantFrom("HTTP/1.1 200 OK", "HTTP/1.0 404 -", "HTTP/1.1 204 No", "HTTP/1.1 500"),
    fields: fc.array(
      fc.constantFrom(
        ...["Content-Length: 5", "content-length:5", "Content-Length: 05", "Content-Length: 3"],
        ...["Transfer-Encoding: chunked", "Connection: close", "X: \x80\xff", "Y:", "Z : 1"],
      ),
      { maxLength: 3 },
    ),
    body: fc.constantFrom(
      "",
      "abcde",
      "5\r\nabcde\r\n0\r\n\r\n",
      "2\r\nab\r\n3\r\ncde\r\n0\r\n\r\n",
    ),
    flip: fc.option(
      fc.record({ at: fc.nat(120), byte: fc.constantFrom("\r", "\n", " ", "0", "a") }),
    ),
  })
  .map(({ head, fields, body, flip }) => {
    const wire = `${[head, ...fields].map((line) => `${line}\r\n`).join("")}\r\n${body}`;
    if (flip === null || flip.at >= wire.length) return wire;
    return wire.slice(0, flip.at) + flip.byte + wire.slice(flip.at + 1);
  });

t.test("whatever is read as a whole answer, Node's own parser reads the same", async (t) => {
  let wire = "";
  let cut = 0;
  const { upstream, pool } = await connected(t, (socket) => {
    socket.setNoDelay(true);
    socket.write(wire.slice(0, cut), "latin1", () => socket.end(wire.slice(cut), "latin1"));
  });
  let accepted = 0;
  const property = fc.asyncProperty(wires, fc.nat(150), async (bytes, at) => {
    [wire, cut] = [bytes, at];
    const own = await ask(pool);
    if (own.error !== undefined) return;
    accepted++;
    const node = await askNode(upstream.url);
    t.strictSame({ status: own.status, body: own.body }, node, JSON.stringify(bytes));
  });
  await fc.assert(property, { numRuns: 600 });
  t.ok(accepted > 100, `${accepted} answers were accepted`);
});
