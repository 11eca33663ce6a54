import t, { type Test } from "tap";
import { eventually } from "../kit/eventually.ts";
import { startGateway } from "../kit/gateway.ts";
import { RawUpstream, wireAnswer } from "../kit/raw-upstream.ts";
import { RecordingUpstream } from "../kit/upstream.ts";
import { Wire, wireRequest } from "../kit/wire.ts";

const config = `
[[routes]]
path = "/files"
methods = ["GET", "POST", "DELETE", "OPTIONS"]
access = "public"
`;
const inner = "GET /inner HTTP/1.1\r\nHost: x\r\n\r\n";
const size = inner.length.toString(16);
const chunked = { "Transfer-Encoding": "chunked" };

async function connect(t: Test, url: string): Promise<Wire> {
  const gateway = await startGateway(t, { upstream: url, config });
  const wire = await Wire.open(gateway.url);
  t.teardown(() => wire.cut());
  return wire;
}

t.test(
  "a body is never left without its length, so that it is no request of its own",
  async (t) => {
    const upstream = await new RecordingUpstream().listen();
    t.teardown(() => upstream.close());
    const wire = await connect(t, upstream.url);
    const length = { "Content-Length": String(inner.length) };
    const framings: [headers: Record<string, string>, body: string][] = [
      [chunked, `${size}\r\n${inner}\r\n0\r\n\r\n`],
      [{ ...chunked, Connection: "transfer-encoding" }, `${size}\r\n${inner}\r\n0\r\n\r\n`],
      [length, inner],
      [{ ...length, Connection: "content-length" }, inner],
    ];
    for (const method of ["GET", "POST", "DELETE", "OPTIONS"]) {
      for (const [headers, body] of framings) {
        wire.text = "";
        wire.send(`${wireRequest(`${method} /files`, headers)}${body}`);
        await wire.until(/\r\n0\r\n\r\n$/);
        const received = upstream.take();
        const name = `${method} with ${Object.keys(headers).join(" and ")}`;
        t.equal(received.length, 1, `${name} is one request`);
        t.equal(received[0]?.url, "/files");
        t.equal(received[0]?.body.toString(), inner, "and its body is a body");
      }
    }
  },
);

t.test("a body streams up while it comes", async (t) => {
  let seen = "";
  const upstream = await new RawUpstream(() => {}).listen();
  t.teardown(() => upstream.close());
  upstream.server.on("connection", (socket) => {
    socket.on("data", (text) => {
      seen += text;
      if (seen.endsWith("0\r\n\r\n")) socket.write(wireAnswer('{"done":true}'));
    });
  });
  const wire = await connect(t, upstream.url);
  wire.send(wireRequest("POST /files", { ...chunked, Expect: "100-continue" }));
  t.equal(await wire.until(/\r\n\r\n/), "HTTP/1.1 100 Continue\r\n\r\n");
  wire.send("5\r\nfirst\r\n");
  await eventually("the first part is there", () => seen.includes("5\r\nfirst\r\n"));
  t.notMatch(seen, /^expect:/im);
  wire.send("6\r\nsecond\r\n0\r\n\r\n");
  await wire.until(/\{"done":true\}/);
});

t.test("an answer that comes before the body has ended is not lost", async (t) => {
  const upstream = await new RawUpstream((socket) => {
    socket.end(wireAnswer('{"enough":true}', "Connection: close\r\n"));
  }).listen();
  t.teardown(() => upstream.close());
  const wire = await connect(t, upstream.url);
  wire.send(`${wireRequest("POST /files", chunked)}5\r\nfirst\r\n`);
  await wire.until(/^HTTP\/1\.1 200 .*\{"enough":true\}/s);
});

t.test("a client that goes away in the middle of its body ends it upstream", async (t) => {
  const upstream = await new RawUpstream(() => {}).listen();
  t.teardown(() => upstream.close());
  const wire = await connect(t, upstream.url);
  wire.send(`${wireRequest("POST /files", chunked)}5\r\nfirst\r\n`);
  await eventually("it went up", () => upstream.connections === 1);
  wire.cut();
  await eventually("the upstream saw the connection close", () => upstream.closed === 1);
});
