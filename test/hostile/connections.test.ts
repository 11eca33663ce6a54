import { once } from "node:events";
import { readFileSync, writeFileSync } from "node:fs";
import { createServer, type ServerResponse } from "node:http";
import { connect, type Socket } from "node:net";
import path from "node:path";
import { text } from "node:stream/consumers";
import { pino } from "pino";
import t from "tap";
import { z } from "zod";
import { limitConnections } from "../../src/core/http/system-limits.ts";
import { eventually, PATIENCE_MS } from "../kit/eventually.ts";
import { freePort } from "../kit/free-port.ts";
import { startGateway, temporaryHome } from "../kit/gateway.ts";
import { Service } from "../kit/process.ts";
import { openSockets, residentBytes } from "../kit/process-info.ts";
import { insert, queryHeaders } from "../kit/queries.ts";
import { RawUpstream } from "../kit/raw-upstream.ts";
import { acceptSockets, openSocket } from "../kit/web-socket.ts";
import { Wire, wireRequest } from "../kit/wire.ts";
import {
  checkRefused,
  type Door,
  openSite,
  type Site,
  sendBytes,
  statusesOf,
  through,
} from "./kit.ts";
import { Witness } from "./witness.ts";

// Everything is started before the first test, since tap may end a file whose tests have all run.
const site = await openSite(t);
const { gateway, witness, query, route } = site;
const flooded = await openSite(t, { config: "[server]\nmax_body_bytes = 100000\n" });
const { gateway: limited, witness: recorder } = flooded;

const embedded = await openSite(t, { isEmbedded: true });
const ways = [
  ...site.doors.map((door) => ({ site, door })),
  { site: embedded, door: embedded.mcp },
];

const refusing = await new RawUpstream(() => {}).listen(t);
const tooLarge = "HTTP/1.1 413 Too Large\r\nContent-Length: 5\r\n\r\nlarge";
refusing.server.on("connection", (socket) => {
  socket.once("data", () => socket.end(tooLarge));
});
const postRoute = '[[routes]]\npath = "/files"\nmethods = ["POST"]\naccess = "public"\n';
const late = await startGateway(t, { upstream: refusing.url, config: postRoute });
const token = await late.login();

const bye = "GET /healthz HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n";
const keep = "GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n";

const kept = (body = query.body) => ({ head: `Content-Length: ${body.length}\r\n`, body });

/** At most 3,000, if this process and the gateway have enough descriptors. */
function manyConnections(): number {
  const limits = readFileSync("/proc/self/limits", "utf8");
  const files = Number(/^Max open files\s+(\d+)/m.exec(limits)?.[1]);
  return Math.min(3000, Math.floor(files / 2) - 100);
}

/** Opens connections in groups, so that none waits too long to be accepted. */
async function openMany({ gateway }: Site, count: number): Promise<Wire[]> {
  const wires: Wire[] = [];
  while (wires.length < count) {
    const group = Array.from({ length: Math.min(250, count - wires.length) }, async () => {
      const wire = await Wire.open(gateway.url);
      wire.send(keep);
      await wire.until(/"version"/);
      return wire;
    });
    wires.push(...(await Promise.all(group)));
  }
  return wires;
}

t.test("idle connections do not disturb other clients", async (t) => {
  const site = await openSite(t);
  const pid = site.gateway.service.child.pid ?? 0;
  const before = residentBytes(pid);
  const count = manyConnections();
  const wires = await openMany(site, count);
  t.teardown(() => wires.map((wire) => wire.cut()));
  for (const door of site.doors) {
    t.strictSame(statusesOf(await sendBytes(site, through(door))), [200], door.name);
  }
  t.ok(
    wires.every(({ isClosed }) => !isClosed),
    `${count} are open`,
  );
  const each = (residentBytes(pid) - before) / count;
  t.ok(each < 100_000, `${Math.round(each / 1024)} KiB each`);
});

t.test("connections to the console and the metrics leave descriptors for files", async (t) => {
  const ports = [await freePort(), await freePort()];
  const [pages, metrics] = ports;
  const config = `[console]\nlisten = "127.0.0.1:${pages}"\n[metrics]\nlisten = "127.0.0.1:${metrics}"\n`;
  const gateway = await startGateway(t, { upstream: refusing.url, limits: "-n 256", config });
  const rita = await gateway.addUser("rita", "ReadOnly");
  const sockets = ports.flatMap((port) => Array.from({ length: 300 }, () => connect(port)));
  t.teardown(() => sockets.map((socket) => socket.destroy()));
  for (const socket of sockets) socket.on("error", () => {});
  await gateway.service.logged(({ msg }) => /limit of open files/.test(String(msg)));
  await gateway.edit((text) => text.replace('username = "rita"\n', "$&disabled = true\n"));
  await eventually("the edit is in force", async () => {
    return (await gateway.get("/api/me", rita)).status === 401;
  });
  t.notOk(gateway.service.log.some((line) => /EMFILE/.test(JSON.stringify(line))));
  for (const socket of sockets) socket.destroy();
  await eventually("both answer again", async () => {
    const paths = [`${pages}/`, `${metrics}/metrics`];
    const answers = paths.map((one) => fetch(`http://127.0.0.1:${one}`, { redirect: "manual" }));
    return (await Promise.allSettled(answers)).every(({ status }) => status === "fulfilled");
  });
});

t.test("the limit of open files is found without a name server", async (t) => {
  const server = createServer();
  limitConnections(server, pino({ enabled: false }));
  t.ok(server.maxConnections > 0);
  // Node finds the names of all peers for a report, while everything else waits.
  const report = z.object({ header: z.object({ networkInterfaces: z.undefined().optional() }) });
  t.ok(report.safeParse(process.report.getReport()).success);
});

t.test("an idle connection does not keep the body of its last request", async (t) => {
  const site = await openSite(t, { isEmbedded: true });
  const pid = site.gateway.service.child.pid ?? 0;
  for (const door of [site.query, site.mcp]) {
    const body = door.body + " ".repeat(900_000);
    let before = 0;
    for (let count = -30; count < 120; count++) {
      // The first ones fill the heap up to what it keeps.
      if (count === 0) before = residentBytes(pid);
      const wire = await Wire.open(site.gateway.url, t);
      wire.send(through(door, kept(body)));
      await wire.until(/HTTP\/1\.1 \d{3} /);
    }
    const grown = Math.round((residentBytes(pid) - before) / 1e6);
    // Garbage that is not collected yet is less.
    t.ok(grown < 85, `${door.name}: ${grown} MB for 120 connections`);
  }
});

t.test("with few file descriptors the gateway closes excess connections", async (t) => {
  const site = await openSite(t, { limits: "-n 64" });
  const { service, url } = site.gateway;
  const wires = await Promise.all(Array.from({ length: 100 }, () => Wire.open(url)));
  t.teardown(() => wires.map((wire) => wire.cut()));
  // Only a response shows that a connection was accepted.
  for (const wire of wires) wire.send(keep);
  const isServed = ({ text }: Wire) => text.includes('"version"');
  await eventually("each is served or closed", () =>
    wires.every((wire) => wire.isClosed || isServed(wire)),
  );
  const warning = await service.logged(({ level, turnedAway }) => level === "warn" && !!turnedAway);
  t.match(warning, { openFilesLimit: 64, msg: /new ones are closed/ });

  const kept = wires.filter(isServed);
  t.ok(kept.length >= 5 && kept.length <= 20, `${kept.length} are kept`);
  for (const wire of kept) wire.send(through(site.route));
  for (const wire of kept) t.strictSame(statusesOf(await wire.untilClosed()), [200, 200]);
  await eventually("a new client is served", async () => {
    const text = await sendBytes(site, through(site.query)).catch(() => "");
    return statusesOf(text)[0] === 200;
  });
  await site.gateway.edit((text) => `${text}\n# still read\n`);
  const reloaded = await service.logged(({ msg }) => /reload/.test(String(msg)));
  t.ok(reloaded, "its files are still reloaded");
  t.equal(service.child.exitCode, null);
});

t.test("a flood of silent connections is closed", async (t) => {
  const site = await openSite(t, { config: "[server]\nrequest_timeout = 1\n", limits: "-n 64" });
  const wires = await Promise.all(Array.from({ length: 30 }, () => Wire.open(site.gateway.url)));
  t.teardown(() => wires.map((wire) => wire.cut()));
  await eventually("all are closed", () => wires.every(({ isClosed }) => isClosed));
  t.match(await sendBytes(site, bye), /^HTTP\/1\.1 200 /);
});

t.test("readyz connects to the upstream at most once a second", async (t) => {
  const { gateway, witness } = await openSite(t);
  const before = witness.connections;
  const start = performance.now();
  const answers = await Promise.all(Array.from({ length: 200 }, () => gateway.request("/readyz")));
  t.ok(answers.every(({ status }) => status === 200));
  const seconds = Math.ceil((performance.now() - start) / 1000);
  t.ok(witness.connections - before <= seconds, `${witness.connections - before} in ${seconds} s`);
  await witness.close();
  await eventually("it reports the loss", async () => {
    return (await gateway.request("/readyz")).status === 503;
  });
  witness.server.listen(0);
});

t.test("WebSockets count towards the limit of connections", async (t) => {
  const witness = await new Witness().listen(t);
  const config = '[[routes]]\npath = "/public/live"\naccess = "public"\nupgrade = true\n';
  const few = await startGateway(t, { upstream: witness.url, config, limits: "-n 64" });
  acceptSockets(t, witness);
  const clients = [await openSocket(`${few.url}/public/live`)];
  await t.rejects(async () => {
    for (;;) clients.push(await openSocket(`${few.url}/public/live`));
  });
  t.ok(clients.length >= 4 && clients.length < 32, `${clients.length} were accepted`);
  for (const client of clients) await client.echo("here");
  for (const client of clients) client.cut();
  await eventually("there is room again", async () => {
    const client = await openSocket(`${few.url}/public/live`).catch(() => undefined);
    client?.cut();
    return client !== undefined;
  });
});

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

t.test("pipelined requests are served one at a time, in order", async (t) => {
  const { held, release } = hold();
  t.teardown(release);
  const wire = await Wire.open(gateway.url);
  const line = (at: number) => ({ ...kept(), line: `POST /db/main/stats?${at}` });
  wire.send([0, 1, 2].map((at) => through(route, line(at))).join("") + bye);
  for (let at = 0; at < 3; at++) {
    await eventually(`request ${at} is forwarded`, () => held.length === at + 1);
    t.equal(held[at]?.url, `/db/main/stats?${at}`);
    t.equal(statusesOf(wire.text).length, at, "later requests wait");
    held[at]?.response.end(`answer ${at}`);
  }
  t.match(await wire.untilClosed(), /answer 0.*answer 1.*answer 2.*"version"/s);
});

t.test("each pipelined request is judged after the effects of earlier ones", async (t) => {
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
  t.match(text, /token_revoked/, "a logout revokes the token for requests that were already sent");
  const up = witness.take().map(({ body }) => body.toString());
  t.strictSame(up, [query.body, insert]);
});

t.test("after a refusal that leaves a body unread, no bytes are taken for a request", async (t) => {
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

t.test("a body that is invalid from its first byte is refused without an error", async () => {
  const head = { "Transfer-Encoding": "chunked", Expect: "100-continue" };
  for (const text of [wireRequest("POST /files", head), wireRequest("POST /query", head)]) {
    const wire = await Wire.open(late.url);
    wire.send(`${text}zz\r\n`);
    t.match(await wire.untilClosed(), /^HTTP\/1\.1 40[01] /);
  }
  const isRefusal = ({ audit, path, status }: Record<string, unknown>) =>
    audit === true && path === "/files" && status === 400;
  await late.service.logged(isRefusal);
  t.strictSame(
    late.service.log.filter(({ level }) => level === "error"),
    [],
  );
});

t.test("invalid bytes are answered after the requests before them", async (t) => {
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
    await eventually("the first is forwarded", () => held.length === at + 1);
    held[at]?.response.end("answer");
    t.strictSame(statusesOf(await wire.untilClosed()), [200, 400], JSON.stringify(junk));
  }
});

t.test("nothing is read after a request that closes its connection", async (t) => {
  witness.take();
  const text = await sendBytes(site, through(query) + through(query, kept()));
  t.strictSame(statusesOf(text), [200]);
  t.equal(witness.take().length, 1);
});

t.test("a client that pipelines without reading uses one upstream connection", async (t) => {
  const { held, release } = hold();
  t.teardown(release);
  const before = witness.connections;
  const wire = await Wire.open(gateway.url);
  wire.send("GET /open HTTP/1.1\r\nHost: x\r\n\r\n".repeat(60));
  await eventually("the first is forwarded", () => held.length === 1);
  await sendBytes(site, bye);
  t.equal(held.length, 1);
  t.equal(witness.connections - before, 1, "one connection to the upstream");
  wire.send("GET /open HTTP/1.1\r\nHost: x\r\n\r\n".repeat(10));
  t.equal(await wire.untilClosed(), "", "a client that continues is disconnected");
  await eventually("the upstream sees it", () => held[0]?.response.destroyed === true);
  t.equal(held.length, 1, "no waiting request is forwarded");
});

t.test("waiting requests are dropped with their connection", async (t) => {
  const config = "[server]\nmax_body_bytes = 65536\nmax_buffered_bytes = 65536\n";
  const small = await openSite(t, { config });
  const { answer } = small.witness;
  let forwarded = 0;
  small.witness.answer = () => forwarded++;
  const large = query.body.padEnd(30_000);
  const mine = small.query;
  for (let round = 1; round <= 6; round++) {
    const wire = await Wire.open(small.gateway.url);
    wire.send(through(mine, kept(large)).repeat(2));
    await eventually("the first is forwarded", () => forwarded === round);
    wire.cut();
  }
  small.witness.answer = answer;
  await eventually("their memory is released", async () => {
    const head = `Content-Length: 60000\r\nConnection: close\r\n`;
    const text = await sendBytes(small, through(mine, { head, body: query.body.padEnd(60_000) }));
    return statusesOf(text)[0] === 200;
  });
});

const MEGABYTE = 1024 * 1024;

/** The maximum size of a socket buffer, which the system tunes by itself. */
function largestBuffer(kind: "rmem" | "wmem"): number {
  return Number(readFileSync(`/proc/sys/net/ipv4/tcp_${kind}`, "utf8").split(/\s+/)[2]);
}

const BUFFERED_BYTES = largestBuffer("rmem") + largestBuffer("wmem") + 8 * MEGABYTE;

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

t.test("a head of more than 128 fields or 16 KiB gets 431", async (t) => {
  for (const door of flooded.doors) {
    const length = `Content-Length: ${door.body.length}\r\nConnection: close\r\n`;
    const own = Object.keys(door.headers).length + 3;
    const lines = (count: number, line = "a: b\r\n") => length + line.repeat(count);
    const full = await sendBytes(flooded, through(door, { head: lines(128 - own) }));
    t.strictSame(statusesOf(full), [200], `${door.name} accepts 128 fields`);
    recorder.takeBytes();
    for (const head of [
      lines(129 - own),
      lines(2500, "a:\r\n"),
      `${"a:\r\n".repeat(2100)}Authorization: x\r\nTransfer-Encoding: chunked\r\n`,
      lines(1, `a: ${"b".repeat(17_000)}\r\n`),
      lines(1, `${"a".repeat(17_000)}: b\r\n`),
    ]) {
      const text = await sendBytes(flooded, through(door, { head }));
      checkRefused(t, text, 431, "headers_too_large", `${head.length} bytes`);
    }
    const long = await sendBytes(flooded, through(door, { line: `POST /${"a".repeat(17_000)}` }));
    checkRefused(t, long, 431, "headers_too_large", "a long target");
    t.equal(recorder.takeBytes(), "");
  }
});

t.test("a refused body is not read to its end", async (t) => {
  const { query, mcp } = flooded;
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
      const wire = await Wire.open(limited.url);
      wire.send(head);
      // A body of unknown length is read further, for clients that read only after sending.
      const most = BUFFERED_BYTES + (head.includes(chunked) ? 64 * MEGABYTE : 0);
      const poured = await pour(wire.socket, piece, 2 * most);
      t.ok(poured < most, `${code}: ${Math.round(poured / MEGABYTE)} MB were read`);
      checkRefused(t, wire.text, status, code, head.slice(0, 20));
    }),
  );
  t.equal(recorder.takeBytes(), "");
});

t.test("a small refused body does not cost the client its connection", async (t) => {
  const { query } = flooded;
  const stranger = { ...query, headers: { "Content-Type": "application/json" } };
  const length = `Content-Length: ${query.body.length}\r\n`;
  const wire = await Wire.open(limited.url);
  wire.send(through(stranger, { head: length }).slice(0, -10));
  await wire.until(/"unauthenticated"/);
  wire.send(query.body.slice(-10) + through(query));
  const text = await wire.untilClosed();
  t.strictSame(statusesOf(text), [401, 200]);
  t.equal(recorder.take().length, 1);
});

t.test("an early response of the upstream ends an endless upload", async (t) => {
  recorder.server.prependOnceListener("request", (_request, response) => {
    response.writeHead(413, { "Content-Length": "4" }).write("full");
  });
  const wire = await Wire.open(limited.url);
  wire.send(through(flooded.route, { head: "Transfer-Encoding: chunked\r\n", body: "" }));
  const poured = await pour(wire.socket, `10000\r\n${" ".repeat(0x10000)}\r\n`, 4 * BUFFERED_BYTES);
  t.ok(poured < 3 * BUFFERED_BYTES, `${Math.round(poured / MEGABYTE)} MB were read`);
  t.match(wire.text, /^HTTP\/1\.1 413 .*\r\n\r\nfull$/s);
});

t.test("slow clients are disconnected while others are served", async (t) => {
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
    t.ok(["408", "400"].includes(text.slice(9, 12)), "each gets a response");
  }
  t.equal(slow.witness.take().length, 1, "none of them was forwarded");
});

function beginnings(door: Door): string[] {
  const whole = through(door);
  const body = whole.length - door.body.length;
  return [
    "",
    "P",
    whole.slice(0, door.line.length),
    whole.slice(0, body - 3),
    whole.slice(0, body),
    whole.slice(0, body + 1),
    whole.slice(0, -1),
    through(door, { head: "Transfer-Encoding: chunked\r\n", body: "" }),
    through(door, { head: "Transfer-Encoding: chunked\r\n", body: "5" }),
    through(door, { head: "Transfer-Encoding: chunked\r\n", body: "5\r\n{   }\r\n" }),
    through(door, { head: "Transfer-Encoding: chunked\r\n", body: "5\r\n{   }\r\n0\r\n" }),
    through(door, { head: "Expect: 100-continue\r\nContent-Length: 9\r\n", body: "" }),
  ];
}

for (const { site, door } of ways) {
  t.test(`an incomplete request is not forwarded by ${door.name}`, async (t) => {
    const pid = site.gateway.service.child.pid ?? 0;
    await sendBytes(site, through(door));
    const sockets = openSockets(pid);
    site.witness.take();
    for (const leave of ["end", "resetAndDestroy"] as const) {
      const wires = await Promise.all(
        beginnings(door).map(async (bytes) => {
          const wire = await Wire.open(site.gateway.url);
          wire.send(bytes);
          return wire;
        }),
      );
      t.strictSame(statusesOf(await sendBytes(site, through(door))), [200], "others are served");
      for (const { socket } of wires) socket[leave]();
      await Promise.all(wires.map((wire) => wire.untilClosed()));
    }
    t.equal(site.witness.take().length, 2, "only the two complete requests were forwarded");
    await eventually("no socket is left", () => openSockets(pid) <= sockets);
  });

  t.test(`the upstream request of a client that leaves is aborted at ${door.name}`, async (t) => {
    const { answer } = site.witness;
    t.teardown(() => {
      site.witness.answer = answer;
    });
    for (const begin of [
      () => {},
      (response: ServerResponse) => void response.writeHead(200).flushHeaders(),
      (response: ServerResponse) => void response.writeHead(200).write('{"status":'),
    ]) {
      const received = Promise.withResolvers<void>();
      const left = Promise.withResolvers<void>();
      site.witness.answer = (_request, response) => {
        response.once("close", left.resolve);
        begin(response);
        received.resolve();
      };
      const wire = await Wire.open(site.gateway.url);
      wire.send(through(door));
      await received.promise;
      wire.socket.resetAndDestroy();
      await left.promise;
      t.pass("the upstream connection is closed");
    }
    site.witness.answer = answer;
    t.strictSame(statusesOf(await sendBytes(site, through(door))), [200], "others are served");
  });
}

/** More than socket buffers hold and than any limit here. */
const SIZE = 24_000_000;
const body = "x".repeat(SIZE);

async function sendThenRead(request: string): Promise<string> {
  const { hostname, port } = new URL(late.url);
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
  "a body for an unknown path": [wireRequest("POST /nowhere", plain, body), 404],
  "a login over the limit": [wireRequest("POST /login", plain, body), 413],
  "a message over the limit": [
    wireRequest("POST /mcp", { ...queryHeaders(token), Host: "localhost" }, body),
    413,
  ],
  "a form over the limit": [wireRequest("POST /oauth/token", form, body), 413],
  "a body that the upstream refuses": [wireRequest("POST /files", plain, body), 413],
};

for (const [name, [request, status]] of Object.entries(requests)) {
  t.test(`${name} gets its response even if the client reads only after sending`, async (t) => {
    const inner = wireRequest("GET /healthz", {});
    const answer = await sendThenRead(request + inner);
    t.match(answer, new RegExp(`^HTTP/1\\.1 ${status} `));
    t.equal(answer.match(/^HTTP\/1\.1 /gm)?.length, 1, "what follows is not taken for a request");
  });
}

/** How long the module behind `/mcp` is searched for, in vain. */
const SEARCH_MS = 500;

/** Loaded before the gateway, it makes the module behind `/mcp` fail to load. */
const hook = `import { registerHooks } from "node:module";
registerHooks({ resolve(name, context, next) {
  if (!name.endsWith("/open-mcp.ts")) return next(name, context);
  console.log(JSON.stringify({ msg: "searching" }));
  Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, ${SEARCH_MS});
  throw new Error("not to be found");
} });`;

t.test("a request to /mcp gets a response while /mcp fails to open", async (t) => {
  const home = temporaryHome(t);
  writeFileSync(path.join(home, "gateway.toml"), '[upstream]\nurl = "http://127.0.0.1:1"\n');
  const port = await freePort();
  const preload = `data:text/javascript,${encodeURIComponent(hook)}`;
  const service = new Service(home, ["serve", "--port", String(port)], {
    GATEHOUSE_ADMIN_PASSWORD: "correct horse",
    NODE_OPTIONS: `--unhandled-rejections=strict --import=${preload}`,
  });
  t.teardown(() => service.stop("SIGKILL"));
  const exit = once(service.child, "exit", { signal: AbortSignal.timeout(PATIENCE_MS) });
  await service.logged(({ msg }) => msg === "searching");
  const wire = await Wire.open(`http://127.0.0.1:${port}`);
  const headers = { Host: "127.0.0.1", Authorization: "Bearer a.b.c" };
  wire.send(wireRequest("POST /mcp", headers).replace("Host: gate.test\r\n", ""));
  t.match(await wire.untilClosed(), /^HTTP\/1\.1 500 .*"code":"internal_error"/s);
  t.strictSame(await exit, [1, null]);
  t.match(service.output, /^gatehouse: .*not to be found$/m);
});
