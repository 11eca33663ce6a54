import { once } from "node:events";
import { readFileSync } from "node:fs";
import type { Socket } from "node:net";
import t from "tap";
import { eventually } from "../kit/eventually.ts";
import { Wire } from "../kit/wire.ts";
import { checkRefused, openSite, sendBytes, statusesOf, through } from "./kit.ts";

const MEGABYTE = 1024 * 1024;

/** Bytes that the system takes at most into the buffers of one kind, as it tunes them by itself. */
function largestBuffer(kind: "rmem" | "wmem"): number {
  return Number(readFileSync(`/proc/sys/net/ipv4/tcp_${kind}`, "utf8").split(/\s+/)[2]);
}

/** What lies in the buffers of two sockets, with room to spare. */
const BUFFERED_BYTES = largestBuffer("rmem") + largestBuffer("wmem") + 8 * MEGABYTE;

const site = await openSite(t, { config: "[server]\nmax_body_bytes = 100000\n" });
const { gateway, witness } = site;

/** Writes as fast as it is taken, until the other side closes or `limit` bytes are out. */
async function pour(socket: Socket, piece: string, limit: number): Promise<number> {
  let poured = 0;
  while (!socket.destroyed && poured < limit) {
    poured += piece.length;
    if (!socket.write(piece, "latin1")) {
      await Promise.race([once(socket, "drain"), once(socket, "close")]).catch(() => {});
    }
  }
  return poured;
}

t.test("a head of more than 128 lines or 16 KiB is 431", async (t) => {
  for (const door of site.doors) {
    const length = `Content-Length: ${door.body.length}\r\nConnection: close\r\n`;
    const own = Object.keys(door.headers).length + 3;
    const lines = (count: number, line = "a: b\r\n") => length + line.repeat(count);
    const full = await sendBytes(site, through(door, { head: lines(128 - own) }));
    t.strictSame(statusesOf(full), [200], `${door.name} takes 128 lines`);
    witness.takeBytes();
    for (const head of [
      lines(129 - own),
      lines(2500, "a:\r\n"),
      `${"a:\r\n".repeat(2100)}Authorization: x\r\nTransfer-Encoding: chunked\r\n`,
      lines(1, `a: ${"b".repeat(17_000)}\r\n`),
      lines(1, `${"a".repeat(17_000)}: b\r\n`),
    ]) {
      const text = await sendBytes(site, through(door, { head }));
      checkRefused(t, text, 431, "headers_too_large", `${head.length} bytes`);
    }
    const long = await sendBytes(site, through(door, { line: `POST /${"a".repeat(17_000)}` }));
    checkRefused(t, long, 431, "headers_too_large", "a long target");
    t.equal(witness.takeBytes(), "");
  }
});

t.test("a body that is refused is not read to its end", async (t) => {
  const { query, mcp } = site;
  const chunked = "Transfer-Encoding: chunked\r\n";
  const stranger = { ...query, headers: { "Content-Type": "application/json" } };
  const huge = `Content-Length: ${1000 * MEGABYTE}\r\n`;
  const cases: [bytes: string, status: number, code: string][] = [
    [through(query, { head: huge, body: "" }), 413, "body_too_large"],
    [through(query, { head: chunked, body: "" }), 413, "body_too_large"],
    [through(mcp, { head: huge, body: "" }), 413, "body_too_large"],
    [through(mcp, { head: chunked, body: "" }), 413, "body_too_large"],
    [through(query, { line: "POST /login", head: chunked, body: "" }), 413, "body_too_large"],
    [through(stranger, { head: chunked, body: "" }), 401, "unauthenticated"],
    [through(stranger, { head: huge, body: "" }), 401, "unauthenticated"],
    [through(query, { line: "POST /nowhere", head: chunked, body: "" }), 404, "not_found"],
    [through(query, { line: "PUT /query", head: chunked, body: "" }), 405, "method_not_allowed"],
    [
      through(query, { head: `${chunked}Content-Encoding: gzip\r\n`, body: "" }),
      415,
      "unsupported_media_type",
    ],
  ];
  const piece = `10000\r\n${" ".repeat(0x10000)}\r\n`;
  await Promise.all(
    cases.map(async ([head, status, code]) => {
      const wire = await Wire.open(gateway.url);
      wire.send(head);
      // As much of a body whose length nobody knows is read for clients that look up only behind it.
      const most = BUFFERED_BYTES + (head.includes(chunked) ? 64 * MEGABYTE : 0);
      const poured = await pour(wire.socket, piece, 2 * most);
      t.ok(poured < most, `${code}: ${Math.round(poured / MEGABYTE)} MB were taken`);
      checkRefused(t, wire.text, status, code, head.slice(0, 20));
    }),
  );
  t.equal(witness.takeBytes(), "");
});

t.test("a small body that is refused costs nobody the connection", async (t) => {
  const { query } = site;
  const stranger = { ...query, headers: { "Content-Type": "application/json" } };
  const length = `Content-Length: ${query.body.length}\r\n`;
  const wire = await Wire.open(gateway.url);
  wire.send(through(stranger, { head: length }).slice(0, -10));
  await wire.until(/"unauthenticated"/);
  wire.send(query.body.slice(-10) + through(query));
  const text = await wire.untilClosed();
  t.strictSame(statusesOf(text), [401, 200]);
  t.equal(witness.take().length, 1);
});

t.test("an answer of the upstream's that comes early ends an endless upload", async (t) => {
  witness.server.prependOnceListener("request", (_request, response) => {
    response.writeHead(413, { "Content-Length": "4" }).write("full");
  });
  const wire = await Wire.open(gateway.url);
  wire.send(through(site.route, { head: "Transfer-Encoding: chunked\r\n", body: "" }));
  const poured = await pour(wire.socket, `10000\r\n${" ".repeat(0x10000)}\r\n`, 4 * BUFFERED_BYTES);
  t.ok(poured < 3 * BUFFERED_BYTES, `${Math.round(poured / MEGABYTE)} MB were taken`);
  t.match(wire.text, /^HTTP\/1\.1 413 .*\r\n\r\nfull$/s);
});

t.test("an encoded body is 415 where the gateway reads it", async (t) => {
  const fresh = await openSite(t);
  for (const door of [fresh.query, fresh.mcp]) {
    for (const encoding of ["gzip", "deflate", "br", "zstd", "identity, gzip", "x"]) {
      const head = `Content-Length: ${door.body.length}\r\nContent-Encoding: ${encoding}\r\nConnection: close\r\n`;
      const text = await sendBytes(fresh, through(door, { head }));
      t.strictSame(statusesOf(text), [415], `${door.name}: ${encoding}`);
      t.match(text, '"code":"unsupported_media_type"');
    }
  }
  t.equal(fresh.witness.takeBytes(), "");
});

t.test("who speaks slowly is closed, and others are served meanwhile", async (t) => {
  const slow = await openSite(t, { config: "[server]\nrequest_timeout = 2\n" });
  const beginnings = slow.doors.flatMap((door) => [
    through(door).slice(0, 30),
    through(door, { body: door.body.slice(0, 5) }),
    through(door, { head: "Transfer-Encoding: chunked\r\n", body: "5\r\n{" }),
  ]);
  const wires = await Promise.all(
    Array.from({ length: 60 }, async (_, at) => {
      const wire = await Wire.open(slow.gateway.url);
      wire.send(beginnings[at % beginnings.length] ?? "");
      return wire;
    }),
  );
  const drip = setInterval(() => {
    for (const wire of wires) if (!wire.isClosed) wire.send(" ");
  }, 200);
  t.teardown(() => clearInterval(drip));
  t.strictSame(statusesOf(await sendBytes(slow, through(slow.query))), [200]);
  await eventually("all are closed", () => wires.every(({ isClosed }) => isClosed));
  for (const { text } of wires) {
    t.ok(["408", "400"].includes(text.slice(9, 12)), "each with an answer");
  }
  t.equal(slow.witness.take().length, 1, "nothing of it was a request");
});
