import { once } from "node:events";
import { existsSync, statSync, writeFileSync } from "node:fs";
import { connect, createServer } from "node:net";
import { join } from "node:path";
import { pino } from "pino";
import t from "tap";
import { startEngine } from "../../src/engine/engine.ts";
import { preferredForm } from "../../src/engine/server.ts";
import {
  createTable,
  freshEngine,
  insert,
  query,
  selectAll,
  send,
  startOver,
  temporaryDirectory,
} from "./kit.ts";

const log = pino({ level: "silent" });
const json = { "content-type": "application/json" };
const body = JSON.stringify(createTable("users", { id: "int" }));

t.test("only the two routes answer, each to its method", async (t) => {
  const { engine } = await freshEngine(t);
  const { address } = engine;
  t.same((await send(address, { path: "/healthz" })).body, { status: "success" });
  t.match(await send(address, { path: "/" }), { status: 404, body: { code: "not_found" } });
  t.match(await send(address, { path: "/constructor" }), { status: 404 });
  t.match(await send(address, { path: "/query" }), { status: 405, headers: { allow: "POST" } });
  t.match(await send(address, { path: "/healthz", method: "POST" }), {
    status: 405,
    headers: { allow: "GET" },
  });
});

t.test("only JSON without a content encoding is taken", async (t) => {
  const { engine } = await freshEngine(t);
  const post = { method: "POST", path: "/query" };
  const wrong = [{}, { "content-type": "text/plain" }, { ...json, "content-encoding": "gzip" }];
  for (const headers of wrong) {
    t.match(await send(engine.address, { ...post, headers }, body), { status: 415 });
  }
  const headers = { "content-type": "application/json; charset=utf-8" };
  t.match(await send(engine.address, { ...post, headers }, body), { status: 200 });
});

t.test("a body past the limit is a 413, announced or not", async (t) => {
  const { engine } = await freshEngine(t);
  const post = { method: "POST", path: "/query" };
  const headers = { ...json, "content-length": String(65 * 1024 * 1024) };
  const socket = connect(engine.address.slice("unix:".length));
  const lines = Object.entries(headers).map(([name, value]) => `${name}: ${value}\r\n`);
  socket.write(`POST /query HTTP/1.1\r\nhost: localhost\r\n${lines.join("")}\r\n`);
  const [chunk] = await once(socket, "data");
  t.match(String(chunk), /^HTTP\/1\.1 413 /);
  socket.destroy();
  const chunked = { ...json, "transfer-encoding": "chunked" };
  const long = Buffer.alloc(65 * 1024 * 1024, " ");
  t.match(await send(engine.address, { ...post, headers: chunked }, long), {
    status: 413,
    body: { code: "body_too_large" },
  });
  t.equal((await send(engine.address, { path: "/healthz" })).status, 200);
});

t.test("a body arrives whole, however it is cut up", async (t) => {
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

t.test("on a port only loopback hosts are served", async (t) => {
  const directory = temporaryDirectory(t);
  const engine = await startEngine({ url: `sqlite:${directory}`, listen: "127.0.0.1:0", log });
  t.teardown(() => engine.close());
  t.match(engine.address, /^http:\/\/127\.0\.0\.1:\d+$/);
  t.equal((await query(engine.address, body)).status, 200);
  for (const host of ["localhost", "LOCALHOST:99", "[::1]:1", "127.0.0.1"]) {
    t.equal((await send(engine.address, { path: "/healthz", headers: { host } })).status, 200);
  }
  for (const host of [
    "evil.example",
    "localhost.evil.example",
    "127.0.0.1.evil.example",
    "a@localhost",
  ]) {
    t.match(await send(engine.address, { path: "/healthz", headers: { host } }), {
      status: 403,
      body: { code: "host_not_allowed" },
    });
  }
});

t.test("with a secret, only those who know it are served", async (t) => {
  const directory = temporaryDirectory(t);
  const authorization = "Bearer of the secret";
  const url = `sqlite:${directory}`;
  const engine = await startEngine({ url, listen: "127.0.0.1:0", authorization, log });
  t.teardown(() => engine.close());
  const post = { method: "POST", path: "/query" };
  for (const headers of [json, { ...json, authorization: "Bearer of another" }]) {
    t.match(await send(engine.address, { ...post, headers }, body), {
      status: 401,
      body: { code: "unauthorized" },
    });
  }
  t.equal(
    (await send(engine.address, { ...post, headers: { ...json, authorization } }, body)).status,
    200,
  );
  await t.rejects(startEngine({ url, listen: "127.0.0.1:0", authorization: "", log }));
});

t.test(
  "addresses and databases that the engine does not serve are errors that say so",
  async (t) => {
    const directory = temporaryDirectory(t);
    const url = `sqlite:${directory}`;
    for (const listen of [
      ...["0.0.0.0:0", "192.0.2.1:80", "example.com:80", "[::]:0", "127.0.0.1:99999", "9090"],
      "unix:",
    ]) {
      await t.rejects(startEngine({ url, listen, log }), /cannot listen/, listen);
    }
    for (const url of ["oracle://localhost/x", "nothing"]) {
      await t.rejects(
        startEngine({ url, listen: "127.0.0.1:0", log }),
        /use sqlite:DIRECTORY, postgres:.* or mysql:/,
        url,
      );
    }
    await t.rejects(startEngine({ url: "sqlite:", listen: "127.0.0.1:0", log }), /no directory/);
  },
);

t.test("socket, directory and files are the owner's alone", async (t) => {
  const { engine, directory } = await freshEngine(t);
  const mode = (path: string): number => statSync(path).mode & 0o777;
  await query(engine.address, body);
  t.equal(mode(engine.address.slice("unix:".length)), 0o600);
  t.equal(mode(join(directory, "data")), 0o700);
  t.equal(mode(join(directory, "data", "main.sqlite")), 0o600);
  t.equal(mode(join(directory, "data", "main.sqlite-journal")), 0o600);
});

t.test("a socket in use and a file are left alone", async (t) => {
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

t.test("a socket in a directory that is not there is refused with what to do", async (t) => {
  const directory = join(temporaryDirectory(t), "gone");
  const listen = `unix:${join(directory, "engine.sock")}`;
  const started = startEngine({ url: `sqlite:${temporaryDirectory(t)}`, listen, log });
  await t.rejects(started, /^Socket directory .*gone does not exist\. Create it/);
});

t.test("the port is free and the address refused after close", async (t) => {
  const directory = temporaryDirectory(t);
  const engine = await startEngine({ url: `sqlite:${directory}`, listen: "127.0.0.1:0", log });
  const port = Number(new URL(engine.address).port);
  await engine.close();
  await t.rejects(query(engine.address, body), { code: "ECONNREFUSED" });
  const other = createServer().listen(port, "127.0.0.1");
  await once(other, "listening");
  other.close();
});

const wanted: readonly (readonly [accept: string | undefined, form: string])[] = [
  [undefined, "json"],
  ["", "json"],
  ["*/*", "json"],
  ["application/*", "json"],
  ["application/json", "json"],
  ["application/x-ndjson", "ndjson"],
  ["APPLICATION/X-NDJSON", "ndjson"],
  ["text/csv", "csv"],
  ["text/csv; charset=utf-8", "csv"],
  ['text/csv;charset="UTF-8";header=present', "csv"],
  ["text/*", "csv"],
  ["text/csv, */*", "csv"],
  ["text/csv, */*;q=0.1", "csv"],
  ["*/*, application/x-ndjson", "ndjson"],
  ["application/x-ndjson, application/json", "json"],
  ["application/x-ndjson, application/json;q=0.9", "ndjson"],
  ["application/x-ndjson;q=0.5, text/csv;q=0.8", "csv"],
  ["application/x-ndjson;q=0.5, text/csv;q=0.500", "ndjson"],
  ["application/json;q=0, */*", "ndjson"],
  ["application/json;q=0, application/x-ndjson;q=0, */*", "csv"],
  ["text/html, application/xhtml+xml", "json"],
  ["application/json;q=0", "json"],
  ["text/csv;header=absent", "json"],
  ["text/csv;charset=iso-8859-1, application/x-ndjson;q=0.1", "ndjson"],
  ["text/csv;q=2, application/x-ndjson;q=0.1", "ndjson"],
  ["text/csv;q=nonsense", "json"],
  [",;,", "json"],
];

t.test("rows are in the form that Accept wants most, and else in JSON", async (t) => {
  for (const [accept, form] of wanted) t.equal(preferredForm(accept), form, String(accept));
});
