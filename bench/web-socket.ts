/**
 * Compares ways to join the two connections of a WebSocket: the gateway's own splice and the `ws` mode of
 * `http-proxy-3`. Prints processor time per echoed message, and the behavior when an upstream refuses the
 * handshake.
 *
 * `node bench/web-socket.ts [--seconds 3]`
 */
import { once } from "node:events";
import { createServer, type IncomingMessage, ServerResponse } from "node:http";
import { connect, createServer as createTcpServer, type Server, type Socket } from "node:net";
import { setTimeout as delay } from "node:timers/promises";
import { parseArgs } from "node:util";
import { createProxyServer } from "http-proxy-3";
import { createReverseProxy } from "../src/core/upstream/reverse-proxy.ts";
import { asWebSocket } from "../src/features/routes/web-socket.ts";
import { ACCEPT, handshake } from "../test/kit/web-socket.ts";
import { describeMachine } from "./rig/machine.ts";
import { markdownTable } from "./rig/table.ts";

const { values: flags } = parseArgs({ options: { seconds: { type: "string", default: "3" } } });

const CONNECTIONS = 16;
const MESSAGE = Buffer.alloc(1024, "m");
/** Bytes of a refusal that the client does not read. */
const REFUSAL_BYTES = 64 * 1024 * 1024;

const agreement = (accept: string) =>
  `HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Accept: ${accept}\r\n\r\n`;
/** Responses of the upstream to a handshake by path. */
const answers: Readonly<Record<string, string>> = {
  "/echo": agreement(ACCEPT),
  "/other": agreement("of another handshake"),
  "/refused": `HTTP/1.1 403 Forbidden\r\nContent-Length: ${REFUSAL_BYTES}\r\n\r\n`,
};

/** Forwards a handshake to the upstream. */
type Join = (request: IncomingMessage, socket: Socket, head: Buffer) => void;

async function listening(server: Server): Promise<number> {
  server.listen({ port: 0, host: "127.0.0.1" });
  await once(server, "listening");
  const address = server.address();
  return typeof address === "object" && address !== null ? address.port : 0;
}

function startUpstream(): Promise<number> {
  const server = createTcpServer((socket) => {
    socket.setNoDelay(true).on("error", () => {});
    socket.once("data", (head) => {
      const [, path = ""] = head.toString("latin1").split(" ");
      socket.write(answers[path] ?? "");
      if (path === "/refused") socket.write(Buffer.alloc(REFUSAL_BYTES));
      else socket.pipe(socket);
    });
  });
  return listening(server);
}

function joinByLibrary(port: number): Join {
  const proxy = createProxyServer({ target: `http://127.0.0.1:${port}` });
  proxy.on("error", (_error, _request, side) => side?.destroy());
  return (request, socket, head) => proxy.ws(request, socket, head);
}

function joinBySplice(port: number): Join {
  const target = { origin: `http://127.0.0.1:${port}`, socketPath: undefined };
  const proxy = createReverseProxy(target, 1000, 60_000);
  return (request, socket) => {
    const response = new ServerResponse(request);
    response.assignSocket(socket);
    const stream = { request, response, headers: request.headers, answerHeaders: [] };
    proxy.forward(asWebSocket(stream, 60_000)).catch(() => response.writeHead(502).end());
  };
}

/** Resolves at the first bytes of the response. */
async function shakeHands(port: number, path: string): Promise<{ socket: Socket; head: string }> {
  const socket = connect({ port, host: "127.0.0.1" });
  const fields = Object.entries({ Host: "localhost", ...handshake() });
  const lines = fields.map(([name, value]) => `${name}: ${value}\r\n`).join("");
  socket.setNoDelay(true).on("error", () => {});
  socket.write(`GET ${path} HTTP/1.1\r\n${lines}\r\n`);
  await once(socket, "readable");
  const head = String(socket.read(Math.min(512, socket.readableLength)) ?? "");
  return { socket, head };
}

/** Microseconds of processor time per echoed message. */
async function costOfMessage(port: number): Promise<number> {
  let messages = 0;
  const clients = await Promise.all(
    Array.from({ length: CONNECTIONS }, () => shakeHands(port, "/echo")),
  );
  for (const { socket } of clients) {
    let missing = MESSAGE.length;
    socket.on("data", (piece: Buffer) => {
      missing -= piece.length;
      if (missing > 0) return;
      missing = MESSAGE.length;
      messages++;
      socket.write(MESSAGE);
    });
    socket.write(MESSAGE);
  }
  await delay(500);
  const [before, messagesBefore] = [process.cpuUsage(), messages];
  await delay(Number(flags.seconds) * 1000);
  const { user, system } = process.cpuUsage(before);
  const cost = (user + system) / (messages - messagesBefore);
  for (const { socket } of clients) socket.destroy();
  return cost;
}

const upstream = await startUpstream();
const rows: string[][] = [];
for (const [name, join] of Object.entries({
  "http-proxy-3": joinByLibrary(upstream),
  "own splice": joinBySplice(upstream),
})) {
  let latest: Socket | undefined;
  const server = createServer().on("upgrade", (request, _socket, head) => {
    latest = request.socket.on("error", () => {});
    join(request, request.socket, head);
  });
  const port = await listening(server);
  const costs = [await costOfMessage(port), await costOfMessage(port), await costOfMessage(port)];
  const other = await shakeHands(port, "/other");
  other.socket.destroy();
  const refused = await shakeHands(port, "/refused");
  await delay(1000);
  const held = (latest?.writableLength ?? 0) / 2 ** 20;
  refused.socket.destroy();
  rows.push([
    name,
    `${Math.min(...costs).toFixed(1)} µs`,
    other.head.split(" ")[1] ?? "",
    `${held.toFixed(1)} MiB`,
  ]);
}
const straight = [await costOfMessage(upstream), await costOfMessage(upstream)];
rows.push(["without a proxy", `${Math.min(...straight).toFixed(1)} µs`, "101", ""]);
console.log(`${describeMachine().join("; ")}\n`);
console.log(
  markdownTable(["", "a message", "answer to a false agreement", "held of a refusal"], rows),
);
process.exit();
