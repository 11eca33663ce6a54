import { once } from "node:events";
import { request } from "node:http";
import { createServer as createSecureServer } from "node:https";
import type { Socket } from "node:net";
import { setTimeout as wait } from "node:timers/promises";
import { setDefaultCACertificates } from "node:tls";
import { Worker } from "node:worker_threads";
import * as fc from "fast-check";
import t, { type Test } from "tap";
import {
  type AnswerHead,
  type AnswerReceiver,
  parseAnswerHead,
} from "../../src/core/upstream/http1/answer-reader.ts";
import { ConnectionPool } from "../../src/core/upstream/http1/connection.ts";
import { parseTarget } from "../../src/core/upstream/target.ts";
import { makeCertificate } from "../kit/certificate.ts";
import { PATIENCE_MS } from "../kit/eventually.ts";
import { listening } from "../kit/listening.ts";
import { sentBytes } from "../kit/process-info.ts";
import { type OnRequest, RawUpstream, wireAnswer } from "../kit/raw-upstream.ts";

const TIMEOUTS = { connectTimeoutMs: PATIENCE_MS, responseTimeoutMs: PATIENCE_MS };

interface Read {
  status: number;
  headers: string[];
  body: string;
  interim: number;
  error: Error | undefined;
}

class Received implements AnswerReceiver {
  readonly read: Promise<Read>;
  readonly #resolve: (read: Read) => void;
  readonly #state: Read = { status: 0, headers: [], body: "", interim: 0, error: undefined };

  constructor() {
    const { promise, resolve } = Promise.withResolvers<Read>();
    this.read = promise;
    this.#resolve = resolve;
  }

  onBytes(): void {}

  onInterim(): void {
    this.#state.interim++;
  }

  onHead({ status, headers }: AnswerHead): void {
    Object.assign(this.#state, { status, headers });
  }

  onData(piece: Buffer): void {
    this.#state.body += piece.toString("latin1");
  }

  onEnd(last: Buffer | undefined): void {
    this.#state.body += last?.toString("latin1") ?? "";
    this.#resolve(this.#state);
  }

  onError(error: Error): void {
    this.#resolve({ ...this.#state, error });
  }
}

async function connected(
  t: Test,
  onRequest: OnRequest,
): Promise<{ upstream: RawUpstream; pool: ConnectionPool }> {
  const upstream = await new RawUpstream(onRequest).listen();
  const pool = new ConnectionPool(parseTarget(upstream.url), TIMEOUTS);
  t.teardown(async () => {
    pool.close();
    await upstream.close();
  });
  return { upstream, pool };
}

async function ask(pool: ConnectionPool, body = ""): Promise<Read> {
  const gathered = new Received();
  const head = `POST / HTTP/1.1\r\nHost: x\r\nContent-Length: ${body.length}\r\n\r\n`;
  pool.take().send(head, Buffer.from(body), gathered);
  return gathered.read;
}

/** The response as Node's own client reads it; undefined if it refuses it. */
async function askNode(url: string): Promise<Pick<Read, "status" | "body"> | undefined> {
  const sent = request(url, { method: "POST", agent: false }).end();
  // Bytes after the response may be an error of their own.
  sent.on("error", () => {});
  try {
    const [answer] = await once(sent, "response");
    let body = "";
    for await (const piece of answer.setEncoding("latin1")) body += piece;
    return { status: answer.statusCode, body };
  } catch {
    return undefined;
  }
}

t.test("consecutive responses on one connection arrive complete", async (t) => {
  const { upstream, pool } = await connected(t, (socket, request) => {
    socket.write(wireAnswer(request.slice(request.indexOf("\r\n\r\n") + 4)));
  });
  for (const body of ["one", "", "three"]) t.match(await ask(pool, body), { status: 200, body });
  t.equal(upstream.connections, 1);
});

t.test("requests written in one turn of the event loop do not mix", async (t) => {
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

t.test("interim responses are counted and skipped", async (t) => {
  const { pool } = await connected(t, (socket) => {
    socket.write(`HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 -\r\nA: b\r\n\r\n${wireAnswer("x")}`);
  });
  t.match(await ask(pool), { status: 200, interim: 2, body: "x" });
});

const chunked = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";
const brokenAnswers = {
  "a response that is not HTTP": "SSH-2.0-server\r\n\r\n",
  "a head without end": `HTTP/1.1 200 OK\r\nA: ${"a".repeat(17_000)}`,
  "an upgrade that was not requested": "HTTP/1.1 101 Switching\r\n\r\n",
  "a chunk's size in words": `${chunked}ten\r\n0123456789\r\n0\r\n\r\n`,
  "a chunk's size with a sign": `${chunked}+3\r\nabc\r\n0\r\n\r\n`,
  "a chunk's size that is too large": `${chunked}fffffffffffff\r\nabc`,
  "an empty size": `${chunked}\r\nabc\r\n0\r\n\r\n`,
  "a bare LF after a size": `${chunked}3\nabc\r\n0\r\n\r\n`,
  "a chunk that is too long": `${chunked}3\r\nabcd\r\n0\r\n\r\n`,
  "a size line without end": `${chunked}3;${"a".repeat(2000)}`,
  "a malformed trailer": `${chunked}0\r\nno trailer\r\n\r\n`,
  "trailers without end": `${chunked}0\r\n${`A: ${"a".repeat(900)}\r\n`.repeat(20)}`,
};
for (const [what, wire] of Object.entries(brokenAnswers)) {
  t.test(`${what} ends the connection with an error`, async (t) => {
    const { upstream, pool } = await connected(t, (socket) => void socket.write(wire));
    const { error } = await ask(pool);
    t.match(error, { name: "BrokenAnswerError" });
    t.ok((await ask(pool)).error, "the next request gets its own connection");
    t.equal(upstream.connections, 2);
  });
}

t.test("bytes that arrive before a request is written are not its response", async (t) => {
  const sockets: Socket[] = [];
  const { upstream, pool } = await connected(t, (socket, _request, connection) => {
    socket.write(wireAnswer(`mine ${connection}`));
    sockets.push(socket);
  });
  t.match(await ask(pool), { body: "mine 1" });
  // After a timer, Node reads what has arrived before it writes anything.
  await wait(1);
  sockets[0]?.write(wireAnswer("stray"));
  // On a busy system the bytes may take a moment to arrive.
  while (sockets[0] !== undefined && sentBytes(sockets[0]).unread === 0);
  t.match(await ask(pool), { error: { failure: "closed" } });
  t.match(await ask(pool), { body: "mine 2" });
  t.equal(upstream.requests.length, 2, "the second request was never sent");
});

t.test("a request sent at the end of a response can use its connection", async (t) => {
  const { upstream, pool } = await connected(t, (socket) => void socket.write(wireAnswer("x")));
  class Chained extends Received {
    next: ReturnType<typeof ask> | undefined;
    override onEnd(last: Buffer | undefined): void {
      this.next = ask(pool);
      super.onEnd(last);
    }
  }
  const first = new Chained();
  pool.take().send("POST / HTTP/1.1\r\nHost: x\r\n\r\n", Buffer.from(""), first);
  t.match(await first.read, { body: "x" });
  t.match(await first.next, { body: "x" });
  t.equal(upstream.connections, 1);
});

t.test("a connection is not reused shortly before the upstream closes it", async (t) => {
  const { upstream, pool } = await connected(t, (socket) => {
    socket.write(wireAnswer("x", "Keep-Alive: timeout=1\r\n"));
  });
  await ask(pool);
  await ask(pool);
  t.equal(upstream.connections, 2);
});

t.test("an early response is delivered and its connection closed", async (t) => {
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

t.test("a head that arrives byte by byte gets no extra time", async (t) => {
  const { upstream } = await connected(t, (socket) => {
    const timer = setInterval(() => socket.write("H"), 40);
    socket.once("close", () => clearInterval(timer));
  });
  const timeouts = { ...TIMEOUTS, responseTimeoutMs: 200 };
  const pool = new ConnectionPool(parseTarget(upstream.url), timeouts);
  t.teardown(() => pool.close());
  t.match(await ask(pool), { error: { failure: "response-timeout" } });
});

t.test("nothing is sent for a client that left before the connection opened", async (t) => {
  const { upstream, pool } = await connected(t, (socket) => void socket.write(wireAnswer("x")));
  const connection = pool.take();
  const gathered = new Received();
  connection.send("POST / HTTP/1.1\r\nHost: x\r\n\r\n", Buffer.from(""), gathered);
  connection.abort(new Error("gone"));
  t.match(await gathered.read, { error: { message: "gone" } });
  await ask(pool);
  t.equal(upstream.requests.length, 1);
});

const wires = fc
  .record({
    head: fc.constantFrom("HTTP/1.1 200 OK", "HTTP/1.0 404 -", "HTTP/1.1 204 No", "HTTP/1.1 500"),
    fields: fc.array(
      fc.constantFrom(
        "Content-Length: 5",
        "content-length:5",
        "Content-Length: 05",
        "Content-Length: 3",
        "Transfer-Encoding: chunked",
        "Connection: close",
        "X: \x80\xff",
        "Y:",
        "Z : 1",
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

t.test("Node's own parser reads every accepted response in the same way", async (t) => {
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

function headOf(...lines: string[]) {
  return parseAnswerHead(lines.map((line) => `${line}\r\n`).join(""));
}

t.test("a head keeps its fields in order and in their spelling", (t) => {
  const head = headOf("HTTP/1.1 200 OK", "Content-Length: 12", "X-Odd:\t a b \t", "x-odd: c");
  t.strictSame(head.headers, ["Content-Length", "12", "X-Odd", "a b", "x-odd", "c"]);
  t.match(head, { status: 200, framing: "length", length: 12, isKept: true });
  t.end();
});

t.test("exactly one field decides where the body ends", (t) => {
  t.match(headOf("HTTP/1.1 200 OK", "Transfer-Encoding: Chunked"), { framing: "chunked" });
  t.match(headOf("HTTP/1.1 200 OK"), { framing: "close", isKept: false });
  t.match(headOf("HTTP/1.1 304 -", "Content-Length: 5"), { framing: "none" });
  for (const status of [100, 103, 204]) {
    t.match(headOf(`HTTP/1.1 ${status} -`), { framing: "none" });
    for (const field of ["Content-Length: 5", "Content-Length: 0", "Transfer-Encoding: chunked"]) {
      t.throws(() => headOf(`HTTP/1.1 ${status} -`, field), { message: `content in a ${status}` });
    }
  }
  t.match(headOf("HTTP/1.1 205 -", "Content-Length: 0"), { framing: "length", length: 0 });
  t.match(headOf("HTTP/1.1 205 -", "Transfer-Encoding: chunked"), { framing: "chunked" });
  t.throws(() => headOf("HTTP/1.1 205 -", "Content-Length: 1"), { message: "content in a 205" });
  t.end();
});

t.test("a connection is kept if both sides agree", (t) => {
  const length = "Content-Length: 0";
  t.match(headOf("HTTP/1.0 200 OK", length), { isKept: false });
  t.match(headOf("HTTP/1.1 200 OK", length, "Connection: x, Close"), { isKept: false });
  t.match(headOf("HTTP/1.1 200 OK", length, "Connection: closed"), { isKept: true });
  t.match(headOf("HTTP/1.1 200 OK", length, "Keep-Alive: max=5, timeout=7"), { keepSeconds: 7 });
  t.end();
});

const broken = {
  "no version": ["200 OK"],
  "another version": ["HTTP/2.0 200 OK"],
  "a lower-case protocol": ["http/1.1 200 OK"],
  "two spaces before the status": ["HTTP/1.1  200 OK"],
  "a status of two digits": ["HTTP/1.1 20 OK"],
  "a status of four digits": ["HTTP/1.1 2000 OK"],
  "a status below 100": ["HTTP/1.1 099 OK"],
  "a control character in the reason": ["HTTP/1.1 200 O\0K"],
  "a bare CR in the reason": ["HTTP/1.1 200 O\rK"],
  "a bare LF between fields": ["HTTP/1.1 200 OK", "A: 1\nB: 2"],
  "a bare CR in a value": ["HTTP/1.1 200 OK", "A: 1\rB: 2"],
  "a NUL in a value": ["HTTP/1.1 200 OK", "A: 1\0"],
  "a folded field": ["HTTP/1.1 200 OK", "A: 1", " 2"],
  "a space before the colon": ["HTTP/1.1 200 OK", "Content-Length : 5"],
  "a space in a name": ["HTTP/1.1 200 OK", "Content Length: 5"],
  "no name": ["HTTP/1.1 200 OK", ": 5"],
  "no colon": ["HTTP/1.1 200 OK", "Content-Length"],
  "an empty line in the middle": ["HTTP/1.1 200 OK", "", "A: 1"],
  "two lengths": ["HTTP/1.1 200 OK", "Content-Length: 5", "Content-Length: 5"],
  "a list of lengths": ["HTTP/1.1 200 OK", "Content-Length: 5, 5"],
  "a signed length": ["HTTP/1.1 200 OK", "Content-Length: +5"],
  "a negative length": ["HTTP/1.1 200 OK", "Content-Length: -5"],
  "a hexadecimal length": ["HTTP/1.1 200 OK", "Content-Length: 0x5"],
  "an empty length": ["HTTP/1.1 200 OK", "Content-Length:"],
  "a length that is too large": ["HTTP/1.1 200 OK", "Content-Length: 99999999999999999999"],
  "a length and chunks": ["HTTP/1.1 200 OK", "Content-Length: 5", "Transfer-Encoding: chunked"],
  "two encodings": ["HTTP/1.1 200 OK", "Transfer-Encoding: gzip, chunked"],
  "an unknown encoding": ["HTTP/1.1 200 OK", "Transfer-Encoding: xchunked"],
  "chunks twice": ["HTTP/1.1 200 OK", "Transfer-Encoding: chunked", "transfer-encoding: chunked"],
  "chunks in HTTP/1.0": ["HTTP/1.0 200 OK", "Transfer-Encoding: chunked"],
};

t.test("a head that two parsers could read differently is refused", (t) => {
  for (const [what, lines] of Object.entries(broken)) {
    t.throws(() => headOf(...lines), { name: "BrokenAnswerError" }, what);
  }
  t.end();
});

const upstream = `
  const { createServer } = require("node:https");
  const { parentPort, workerData } = require("node:worker_threads");
  let connections = 0;
  const server = createServer(workerData, (request, response) => {
    request.resume().on("end", () => response.end(String(connections), () => {
      Atomics.add(workerData.answers, 0, 1);
      Atomics.notify(workerData.answers, 0);
    }));
  });
  server.on("secureConnection", () => connections++);
  server.listen(0, "127.0.0.1", () => parentPort.postMessage(server.address().port));
`;

t.test("a response before TLS reports its request as sent keeps the connection", async (t) => {
  const certificate = makeCertificate("localhost");
  setDefaultCACertificates([certificate.cert]);
  const answers = new Int32Array(new SharedArrayBuffer(4));
  const worker = new Worker(upstream, { eval: true, workerData: { ...certificate, answers } });
  const [port] = await once(worker, "message");
  const pool = new ConnectionPool(parseTarget(`https://localhost:${port}`), TIMEOUTS);
  t.teardown(async () => {
    pool.close();
    await worker.terminate();
  });
  t.match(await ask(pool), { body: "1" });
  for (let turn = 0; turn < 3; turn++) {
    const before = Atomics.load(answers, 0);
    const answer = ask(pool);
    // Like a busy gateway, it reads only when the response has already arrived.
    setImmediate(() => Atomics.wait(answers, 0, before, 5000));
    t.match(await answer, { body: "1" }, "on the same connection");
  }
});

t.test("an https server may have an IP address, which its certificate must name", async (t) => {
  for (const [name, expected] of [
    ["127.0.0.1", { body: "yes" }],
    ["localhost", { error: { code: "ERR_TLS_CERT_ALTNAME_INVALID" } }],
  ] as const) {
    const certificate = makeCertificate(name);
    setDefaultCACertificates([certificate.cert]);
    const server = createSecureServer(certificate, (_, response) => response.end("yes"));
    const port = await listening(t, server);
    const pool = new ConnectionPool(parseTarget(`https://127.0.0.1:${port}`), TIMEOUTS);
    t.teardown(() => pool.close());
    t.match(await ask(pool), expected, name);
  }
});
