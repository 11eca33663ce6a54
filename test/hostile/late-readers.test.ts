import { once } from "node:events";
import { connect } from "node:net";
import { text } from "node:stream/consumers";
import t from "tap";
import { startGateway } from "../kit/gateway.ts";
import { queryHeaders } from "../kit/queries.ts";
import { RawUpstream } from "../kit/raw-upstream.ts";
import { wireRequest } from "../kit/wire.ts";

/** More than the systems' buffers hold, and than any limit here. */
const SIZE = 24_000_000;
const body = "x".repeat(SIZE);

/** Refuses by the head alone, as servers do that know the length. */
const upstream = await new RawUpstream(() => {}).listen();
t.teardown(() => upstream.close());
const refusal = "HTTP/1.1 413 Too Large\r\nContent-Length: 5\r\n\r\nlarge";
upstream.server.on("connection", (socket) => {
  socket.once("data", () => socket.end(refusal));
});
const config = '[[routes]]\npath = "/files"\nmethods = ["POST"]\naccess = "public"\n';
const gateway = await startGateway(t, { upstream: upstream.url, config });
const token = await gateway.login();

/** Sends a request as blocking clients do, which read nothing before all is sent. */
async function sendThenRead(request: string): Promise<string> {
  const { hostname, port } = new URL(gateway.url);
  const socket = connect(Number(port), hostname).setEncoding("latin1");
  await once(socket, "connect");
  const { promise, resolve, reject } = Promise.withResolvers<void>();
  socket.once("error", reject);
  socket.write(request, "latin1", (error) => (error ? reject(error) : resolve()));
  await promise;
  return text(socket);
}

const plain = { "Content-Type": "application/json" };
const form = { "Content-Type": "application/x-www-form-urlencoded" };
const chunked = { ...queryHeaders(token), "Transfer-Encoding": "chunked" };
const chunks = `${SIZE.toString(16)}\r\n${body}\r\n0\r\n\r\n`;
const requests: Record<string, [request: string, status: number]> = {
  "a body over the limit": [wireRequest("POST /query", queryHeaders(token), body), 413],
  "chunks over the limit": [wireRequest("POST /query", chunked) + chunks, 413],
  "a body without a token": [wireRequest("POST /query", plain, body), 401],
  "a body for no path": [wireRequest("POST /nowhere", plain, body), 404],
  "a login over the limit": [wireRequest("POST /login", plain, body), 413],
  "a message over the limit": [
    wireRequest("POST /mcp", { ...queryHeaders(token), Host: "localhost" }, body),
    413,
  ],
  "a form over the limit": [wireRequest("POST /oauth/token", form, body), 413],
  "a body that the upstream refuses": [wireRequest("POST /files", plain, body), 413],
};

for (const [name, [request, status]] of Object.entries(requests)) {
  t.test(`${name} is answered for who reads only after sending`, async (t) => {
    const inner = wireRequest("GET /healthz", {});
    const answer = await sendThenRead(request + inner);
    t.match(answer, new RegExp(`^HTTP/1\\.1 ${status} `));
    t.equal(answer.match(/^HTTP\/1\.1 /gm)?.length, 1, "what follows is no request");
  });
}
