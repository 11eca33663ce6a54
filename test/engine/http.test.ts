import { once } from "node:events";
import { existsSync, statSync, writeFileSync } from "node:fs";
import { connect, createServer } from "node:net";
import { join } from "node:path";
import { pino } from "pino";
import t, { type Test } from "tap";
import { startEngine } from "../../src/engine/engine.ts";
import { preferredForm } from "../../src/engine/server.ts";
import {
  createTable,
  freshEngine,
  insert,
  query,
  refusal,
  selectAll,
  send,
  startOver,
  temporaryDirectory,
} from "./kit.ts";

const log = pino({ level: "silent" });
const json = { "content-type": "application/json" };
const body = JSON.stringify(createTable("users", { id: "int" }));

async function startOnPort(t: Test, authorization?: string) {
  const url = `sqlite:${temporaryDirectory(t)}`;
  const engine = await startEngine({ url, listen: "127.0.0.1:0", authorization, log });
  t.teardown(() => engine.close());
  return engine;
}

const post = { method: "POST", path: "/query" };

t.test("only known routes answer, each to its method", async (t) => {
  const { engine } = await freshEngine(t);
  const health = await send(engine.address, { path: "/healthz" });
  t.same(health.body, { status: "success" });
  for (const [method, path, expected] of [
    ["GET", "/", refusal(404, "not_found")],
    ["GET", "/constructor", refusal(404, "not_found")],
    ["GET", "/query", { status: 405, headers: { allow: "POST" } }],
    ["POST", "/healthz", { status: 405, headers: { allow: "GET" } }],
  ] as const) {
    t.match(await send(engine.address, { method, path }), expected, path);
  }
});

t.test("only JSON without a content encoding is accepted", async (t) => {
  const { engine } = await freshEngine(t);
  const wrong = [{}, { "content-type": "text/plain" }, { ...json, "content-encoding": "gzip" }];
  for (const headers of wrong) {
    t.match(await send(engine.address, { ...post, headers }, body), { status: 415 });
  }
  const headers = { "content-type": "application/json; charset=utf-8" };
  t.match(await send(engine.address, { ...post, headers }, body), { status: 200 });
});

t.test("a body past the limit is a 413, with or without a Content-Length", async (t) => {
  const { engine } = await freshEngine(t);
  const length = 65 * 1024 * 1024;
  const socket = connect(engine.address.slice("unix:".length));
  const head = "POST /query HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n";
  socket.write(`${head}content-length: ${length}\r\n\r\n`);
  const [chunk] = await once(socket, "data");
  t.match(String(chunk), /^HTTP\/1\.1 413 /);
  socket.destroy();
  const headers = { ...json, "transfer-encoding": "chunked" };
  const answer = await send(engine.address, { ...post, headers }, Buffer.alloc(length, " "));
  t.match(answer, refusal(413, "body_too_large"));
  t.equal((await send(engine.address, { path: "/healthz" })).status, 200);
});

t.test("a body arrives whole in any number of chunks", async (t) => {
  const { engine, ask } = await freshEngine(t);
  await ask(createTable("notes", { id: "int", text: "text" }));
  const text = Array.from({ length: 200_000 }, (_, at) => String(at % 10)).join("");
  const chunks = JSON.stringify(insert("notes", [{ id: 1, text }])).replace(/./g, "1\r\n$&\r\n");
  const socket = connect(engine.address.slice("unix:".length));
  t.teardown(() => socket.destroy());
  const head = "POST /query HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n";
  socket.write(`${head}transfer-encoding: chunked\r\n\r\n${chunks}0\r\n\r\n`);
  const [answer] = await once(socket, "data");
  t.match(String(answer), /^HTTP\/1\.1 200 /);
  t.same((await ask(selectAll("notes"))).body.data, [{ id: 1, text }]);
});

t.test("on a port, only loopback hosts are served", async (t) => {
  const { address } = await startOnPort(t);
  t.match(address, /^http:\/\/127\.0\.0\.1:\d+$/);
  t.equal((await query(address, body)).status, 200);
  const get = (host: string) => send(address, { path: "/healthz", headers: { host } });
  for (const host of ["localhost", "LOCALHOST:99", "[::1]:1", "127.0.0.1"]) {
    t.equal((await get(host)).status, 200, host);
  }
  for (const host of ["evil.example", "localhost.evil.example", "127.0.0.1.evil.example"]) {
    t.match(await get(host), refusal(403, "host_not_allowed"), host);
  }
  t.match(await get("a@localhost"), refusal(403, "host_not_allowed"));
});

t.test("with a secret, requests without it are refused", async (t) => {
  const authorization = "Bearer of the secret";
  const { address } = await startOnPort(t, authorization);
  for (const headers of [json, { ...json, authorization: "Bearer of another" }]) {
    t.match(await send(address, { ...post, headers }, body), refusal(401, "unauthorized"));
  }
  const headers = { ...json, authorization };
  t.equal((await send(address, { ...post, headers }, body)).status, 200);
  await t.rejects(startOnPort(t, ""), /authorization is empty/);
});

t.test("an address or a URL that the engine does not support ends the start", async (t) => {
  const url = `sqlite:${temporaryDirectory(t)}`;
  for (const listen of [
    ...["0.0.0.0:0", "192.0.2.1:80", "example.com:80", "[::]:0", "127.0.0.1:99999", "9090"],
    "unix:",
  ]) {
    await t.rejects(startEngine({ url, listen, log }), /cannot listen/, listen);
  }
  const listen = "127.0.0.1:0";
  for (const url of ["oracle://localhost/x", "nothing"]) {
    await t.rejects(
      startEngine({ url, listen, log }),
      /use sqlite:DIRECTORY, postgres:.* or mysql:/,
    );
  }
  await t.rejects(startEngine({ url: "sqlite:", listen, log }), /no directory/);
});

t.test("only the owner can use socket, directory and files", async (t) => {
  const { engine, directory } = await freshEngine(t);
  const mode = (path: string): number => statSync(path).mode & 0o777;
  await query(engine.address, body);
  t.equal(mode(engine.address.slice("unix:".length)), 0o600);
  t.equal(mode(join(directory, "data")), 0o700);
  t.equal(mode(join(directory, "data", "main.sqlite")), 0o600);
  t.equal(mode(join(directory, "data", "main.sqlite-journal")), 0o600);
});

t.test("a socket in use and a file are not replaced", async (t) => {
  const directory = temporaryDirectory(t);
  const first = await startOver(t, directory);
  const listen = `unix:${join(directory, "engine.sock")}`;
  const elsewhere = `sqlite:${join(directory, "other")}`;
  await t.rejects(startEngine({ url: elsewhere, listen, log }), /Another process listens/);
  t.equal((await query(first.address, body)).status, 200);
  await first.close();
  t.notOk(existsSync(join(directory, "engine.sock")), "removed when the engine closes");

  const path = join(directory, "plain");
  writeFileSync(path, "kept");
  const url = `sqlite:${join(directory, "data")}`;
  await t.rejects(startEngine({ url, listen: `unix:${path}`, log }), /is not a socket/);
  t.ok(existsSync(path));
});

t.test("a missing socket directory is refused with the remedy", async (t) => {
  const directory = join(temporaryDirectory(t), "gone");
  const listen = `unix:${join(directory, "engine.sock")}`;
  const started = startEngine({ url: `sqlite:${temporaryDirectory(t)}`, listen, log });
  await t.rejects(started, /^Socket directory .*gone does not exist\. Create it/);
});

t.test("close frees the port", async (t) => {
  const engine = await startOnPort(t);
  const port = Number(new URL(engine.address).port);
  await engine.close();
  await t.rejects(query(engine.address, body), { code: "ECONNREFUSED" });
  const other = createServer().listen(port, "127.0.0.1");
  await once(other, "listening");
  other.close();
});

const accepted: readonly (readonly [accept: string | undefined, form: string])[] = [
  [undefined, "json"],
  ["", "json"],
  ["*/*", "json"],
  ["application/json", "json"],
  ["application/x-ndjson", "ndjson"],
  ["APPLICATION/X-NDJSON", "ndjson"],
  ["text/csv", "csv"],
  ['text/csv;charset="UTF-8";header=present', "csv"],
  ["text/csv, */*", "csv"],
  ["*/*, application/x-ndjson", "ndjson"],
  ["application/x-ndjson, application/json", "json"],
  ["application/x-ndjson, application/json;q=0.9", "ndjson"],
  ["application/x-ndjson;q=0.5, text/csv;q=0.500", "ndjson"],
  ["application/json;q=0, */*", "ndjson"],
  ["application/json;q=0, application/x-ndjson;q=0, */*", "csv"],
  ["text/html, application/xhtml+xml", "json"],
  ["application/json;q=0", "json"],
  ["text/csv;header=absent", "json"],
  ["text/csv;charset=iso-8859-1, application/x-ndjson;q=0.1", "ndjson"],
  ["text/csv;q=2, application/x-ndjson;q=0.1", "ndjson"],
  [",;,", "json"],
];

t.test("rows have the form that Accept prefers, or else JSON", async (t) => {
  t.same(
    accepted.map(([accept]) => [accept, preferredForm(accept)]),
    accepted,
  );
});
