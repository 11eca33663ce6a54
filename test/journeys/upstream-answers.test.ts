import type { Socket } from "node:net";
import t, { type Test } from "tap";
import { eventually } from "../kit/eventually.ts";
import { startGateway, type TestGateway } from "../kit/gateway.ts";
import { insert, queryHeaders, select } from "../kit/queries.ts";
import { RawUpstream, wireAnswer } from "../kit/raw-upstream.ts";
import { RecordingUpstream } from "../kit/upstream.ts";
import { Wire, wireRequest } from "../kit/wire.ts";

const open = '[[routes]]\npath = "/public"\nmethods = ["GET", "POST"]\naccess = "public"\n';

function asking(id: string, operation: "Select" | "Insert"): string {
  const value = { database: "main" };
  if (operation === "Insert") {
    return JSON.stringify({ Insert: { ...value, table: "t", values: [{ id }] } });
  }
  const where = { column: "id", cmp: "=", value: id };
  return JSON.stringify({ Select: { ...value, from: "t", columns: ["*"], where } });
}

function idIn(text: string): string {
  return /"(id-\d+)"/.exec(text)?.[1] ?? "";
}

type Misbehaviour = (socket: Socket, right: string) => void;

function ending(text: string): Misbehaviour {
  return (socket) => socket.end(text, "latin1");
}

const head = "HTTP/1.1 200 OK\r\n";

/** `test/upstream/http1.test.ts` has every malformed head. */
const broken: Record<string, Misbehaviour> = {
  "half a head": ending(`${head}Content-Ty`),
  "half a head, then a reset": (socket) => {
    socket.write(`${head}Content-Ty`, () => socket.resetAndDestroy());
  },
  "another protocol": ending("SSH-2.0-OpenSSH_9.7\r\n"),
  "two lengths": ending(`${head}Content-Length: 1\r\nContent-Length: 2\r\n\r\nab`),
  "a hundred thousand headers": ending(`${head}${"X-A: 1\r\n".repeat(100_000)}\r\n`),
  "interim answers without end": (socket) => {
    socket.write("HTTP/1.1 102 Processing\r\n\r\n".repeat(5000));
  },
};

const cut: Record<string, Misbehaviour> = {
  "fewer bytes than its length": ending(`${head}Content-Length: 100\r\n\r\nhalf`),
  "a chunk whose size is no number": (socket) => {
    socket.write(`${head}Transfer-Encoding: chunked\r\n\r\n4\r\nhalf\r\nzz\r\n`);
  },
  "a chunk longer than its size": (socket) => {
    socket.write(`${head}Transfer-Encoding: chunked\r\n\r\n4\r\nhalfmore\r\n0\r\n\r\n`);
  },
  "chunks without an end": ending(`${head}Transfer-Encoding: chunked\r\n\r\n4\r\nhalf\r\n`),
  "a reset in the body": (socket) => {
    socket.write(`${head}Content-Length: 100\r\n\r\nhalf`, () => socket.resetAndDestroy());
  },
};

const cutEarly: Record<string, Misbehaviour> = {
  "no chunk": ending(`${head}Transfer-Encoding: chunked\r\n\r\n`),
  "half a chunk's size": ending(`${head}Transfer-Encoding: chunked\r\n\r\n4`),
  "a first chunk whose size is no number": (socket) => {
    socket.write(`${head}Transfer-Encoding: chunked\r\n\r\nzz\r\n`);
  },
  "none of the bytes of its length": ending(`${head}Content-Length: 100\r\n\r\n`),
};

const odd: Record<string, Misbehaviour> = {
  "two answers at once": (socket, right) => socket.write(right + wireAnswer('"forged"')),
  "an answer and more": (socket, right) => socket.write(`${right}more`),
  "an answer at the end of the connection": (socket, right) => socket.end(right),
};

const get = "GET /public HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n";

async function scene(t: Test, config = "") {
  let misbehave: Misbehaviour = (socket, right) => socket.write(right);
  const upstream = await new RawUpstream((socket, request) => {
    misbehave(socket, wireAnswer(JSON.stringify(idIn(request))));
  }).listen(t);
  const gateway = await startGateway(t, { upstream: upstream.url, config });
  const token = await gateway.login();
  let count = 0;

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

  /** Checks that the next valid answer has nothing of the previous one. */
  async function recovers(t: Test): Promise<void> {
    const { id, text } = await meet((socket, right) => socket.write(right), "Insert");
    t.ok(text.startsWith("HTTP/1.1 200 ") && text.endsWith(`"${id}"`), "the next answer is right");
  }
  return { upstream, gateway, meet, recovers };
}

const { upstream, meet, recovers } = await scene(t, open);

t.test("an invalid answer is 502, without a retry, and the next one is right", async (t) => {
  for (const [name, how] of Object.entries({ ...broken, ...cutEarly })) {
    for (const operation of ["Select", "Insert"] as const) {
      const { text, carriedOut } = await meet(how, operation);
      t.match(text, /^HTTP\/1\.1 502 .*"code":"upstream_broken"/s, `${operation}: ${name}`);
      t.equal(carriedOut, 1, "something had come back: it is not sent again");
    }
    await recovers(t);
  }
});

t.test("a route passes on no end of interim answers", async (t) => {
  const flood = broken["interim answers without end"] ?? ending("");
  t.match((await meet(flood, "Select", get)).text, /^HTTP\/1\.1 502 .*"code":"upstream_broken"/s);
});

t.test("a truncated answer is truncated for the client, without a retry", async (t) => {
  for (const [name, how] of Object.entries(cut)) {
    const { text, carriedOut } = await meet(how, "Select");
    const isWhole = /\r\n0\r\n\r\n$/.test(text) || text.endsWith("\r\n\r\nhalf");
    const saysLength = /^content-length: 100/im.test(text);
    t.ok(!isWhole || saysLength || /^HTTP\/1\.1 502/.test(text), name);
    t.equal(carriedOut, 1);
    await recovers(t);
  }
});

t.test("bytes after an answer are not used as the next answer", async (t) => {
  for (const [name, how] of Object.entries(odd)) {
    const { id, text, carriedOut } = await meet(how, "Insert");
    t.match(text, new RegExp(`^HTTP/1\\.1 200 .*\r\n\r\n"${id}"$`, "s"), name);
    t.equal(carriedOut, 1);
    await recovers(t);
  }
});

t.test("an unsolicited answer closes its connection", async (t) => {
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
  "101 unasked": "HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: x\r\n\r\n",
};

const empty: Record<string, string> = {
  "204": "HTTP/1.1 204 No Content\r\n\r\n",
  "205": "HTTP/1.1 205 Reset Content\r\nContent-Length: 0\r\n\r\n",
  "205 without chunks": "HTTP/1.1 205 Reset Content\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
  "205 to the end": "HTTP/1.1 205 Reset Content\r\nConnection: close\r\n\r\n",
  "304": "HTTP/1.1 304 Not Modified\r\nETag: a\r\nContent-Length: 6\r\n\r\n",
};

t.test("content with a status that has none is 502, for queries and routes", async (t) => {
  for (const [name, answer] of Object.entries(contents)) {
    for (const request of [undefined, get]) {
      const { text } = await meet(ending(answer), "Insert", request);
      t.match(text, /^HTTP\/1\.1 502 .*"code":"upstream_broken"/s, name);
      t.notMatch(text, "forged");
      await recovers(t);
    }
  }
});

t.test("an answer without content is forwarded without content", async (t) => {
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

t.test("bytes beyond ASCII in headers of an answer reach the client as they are", async (t) => {
  const answer = `${head}ETag: "caf\xe9 \xc3\xa9"\r\nContent-Length: 2\r\n\r\nab`;
  for (const request of [undefined, get, get.replace("GET", "HEAD")]) {
    const { text } = await meet(ending(answer), "Select", request);
    t.match(text, /^HTTP\/1\.1 200 .*ETag: "caf\xe9 \xc3\xa9"\r\n/s);
    t.equal(text.endsWith("\r\n\r\nab"), !request?.startsWith("HEAD"));
  }
});

t.test("a 304 keeps its Content-Length only for conditional GET requests", async (t) => {
  const { "304": unchanged = "" } = empty;
  const conditional = `GET /public HTTP/1.1\r\nHost: x\r\nConnection: close\r\nIf-None-Match: "a"\r\n\r\n`;
  const { text } = await meet(ending(unchanged), "Select", conditional);
  t.match(text, /^HTTP\/1\.1 304 .*Content-Length: 6\r\n/s);
  const post = conditional.replace("GET", "POST");
  t.notMatch((await meet(ending(unchanged), "Select", post)).text, /content-length/i);
});

t.test("interim answers do not extend the response timeout", async (t) => {
  const { meet, recovers } = await scene(t, "response_timeout = 1\n");
  const { text, carriedOut } = await meet((socket) => {
    const timer = setInterval(() => socket.write("HTTP/1.1 102 Processing\r\n\r\n"), 100);
    socket.once("close", () => clearInterval(timer));
  }, "Insert");
  t.match(text, /^HTTP\/1\.1 504 .*"code":"upstream_timeout"/s);
  t.equal(carriedOut, 1);
  await recovers(t);
});

t.test("no client gets another client's answer, however the upstream misbehaves", async (t) => {
  const ways = [...Object.values(broken), ...Object.values(cut), ...Object.values(odd)];
  const { gateway, upstream } = await mixedScene(t, ways);
  const token = await gateway.login();
  const statuses = new Map<number, number>();
  const ask = async (client: number, round: number) => {
    const id = `id-${client * 1000 + round}`;
    const operation = round % 2 === 0 ? "Select" : "Insert";
    try {
      const { status, text } = await gateway.query(asking(id, operation), token);
      statuses.set(status, (statuses.get(status) ?? 0) + 1);
      if (status === 200) t.equal(text, `"${id}"`);
      else t.equal(status, 502);
    } catch {
      // A cut connection is a valid end too.
    }
  };
  await Promise.all(
    Array.from({ length: 16 }, async (_, client) => {
      for (let round = 0; round < 25; round++) await ask(client, round);
    }),
  );
  t.ok((statuses.get(200) ?? 0) > 100, "many are answered all the same");
  const times = new Map<string, number>();
  for (const request of upstream.requests) {
    if (request.includes("Insert")) times.set(idIn(request), (times.get(idIn(request)) ?? 0) + 1);
  }
  t.equal(Math.max(...times.values()), 1, "nothing that writes was sent twice");
});

async function mixedScene(
  t: Test,
  ways: readonly Misbehaviour[],
): Promise<{ gateway: TestGateway; upstream: RawUpstream }> {
  let count = 0;
  const upstream = await new RawUpstream((socket, request) => {
    const right = wireAnswer(JSON.stringify(idIn(request)));
    const way = count++ % 2 === 0 ? undefined : ways[(count >> 1) % ways.length];
    if (way === undefined) socket.write(right);
    else way(socket, right);
  }).listen(t);
  const gateway = await startGateway(t, { upstream: upstream.url, config: "connections = 8\n" });
  return { gateway, upstream };
}

async function fails(
  t: Test,
  gateway: TestGateway,
  body: string,
  expected: { status: number; code: string },
  token: string,
): Promise<void> {
  const answer = await gateway.query(body, token);
  t.equal(answer.status, expected.status, expected.code);
  t.match(answer.body, { status: "error", code: expected.code, message: String });
  t.equal(answer.body.request_id, answer.headers.get("x-request-id"));
}

t.test("an unreachable upstream is 502 until it is back", async (t) => {
  const upstream = await new RecordingUpstream().listen();
  const { url } = upstream;
  await upstream.close();
  const gateway = await startGateway(t, { upstream: url });
  const token = await gateway.login();
  const refused = { status: 502, code: "upstream_unreachable" };
  await fails(t, gateway, select, refused, token);
  await fails(t, gateway, insert, refused, token);
  t.equal((await gateway.request("/readyz")).status, 503);

  const again = new RecordingUpstream();
  again.server.listen(Number(new URL(url).port), "127.0.0.1");
  t.teardown(() => again.close());
  t.equal((await gateway.query(select, token)).status, 200);
  t.equal((await gateway.request("/readyz")).status, 200);
});
