import t from "tap";
import { staffedHome, tokenOf } from "../journeys/staff.ts";
import { startGateway } from "../kit/gateway.ts";
import { tables } from "../kit/tables.ts";
import { Wire } from "../kit/wire.ts";
import { statusesOf } from "./kit.ts";
import { Witness } from "./witness.ts";

const reading = { methods: ["GET", "POST"], access: "SELECT" };
const routes = tables("routes", [
  { path: "/db/:database/files/:name", ...reading, methods: ["GET", "POST", "DELETE"] },
  { path: "/export", ...reading, database_header: "X-Database" },
  { path: "/public/:name", access: "public" },
]);

const witness = new Witness();
await witness.listen();
t.teardown(() => witness.close());
const grants = ["root * Owner", "alice main ReadOnly", "bob side ReadWrite"];
const gateway = await startGateway(t, {
  home: await staffedHome(t, grants),
  upstream: witness.url,
  config: routes,
});
const alice = await tokenOf(gateway, "alice");

/** Sends a request whose target and headers are as they are written. */
async function sendLine(line: string, headers: readonly string[] = [], body = ""): Promise<string> {
  const wire = await Wire.open(gateway.url);
  const own = ["Host: 127.0.0.1", `Authorization: Bearer ${alice}`, "Connection: close"];
  wire.send([`${line} HTTP/1.1`, ...own, ...headers, "", body].join("\r\n"));
  return wire.untilClosed();
}

t.test("a path that some reader takes for another one goes nowhere", async (t) => {
  const names = [
    ...["..", ".", "..;", "..;x", "..;/x", "a;b", ";", "a%3bb", "a%3Bb", "%3b", "..%3bx"],
    ...["%2e%2e", "%2e.", ".%2E", "a%2eb", "%252e%252e", "%252E", "%25252e", "a%252fb", "%252F.."],
    ...["a%2fb", "a%2Fb", "a%5cb", "a%255cb", "a\\b", "..\\x", "%5c..%5c", "a%00b", "a%2500b"],
    ...["a%0ab", "a%0d%0aX-A:1", "a%09b", "a%1fb", "a%7fb", "a%250ab", "a//b", "/", "a#b"],
    ...["%", "a%", "a%2", "a%zz", "%u002e%u002e", "a%u2215b", "%c0%ae%c0%ae", "a%c0%afb", "%ff"],
    ...["%e0%80%af", "%f8%80%80%80%af", "%ed%a0%80", "%c0%80", "%c1%9c", "a b", "a\tb", "caf\xe9"],
  ];
  for (const name of names) {
    for (const place of [`/db/main/files/${name}`, `/public/${name}`]) {
      for (const target of [place, `${place}?x=1`, `${place}/../../side/files/a`]) {
        const text = await sendLine(`GET ${target}`);
        t.match(statusesOf(text), [/^40[04]$/], target);
        t.equal(witness.takeBytes(), "", target);
      }
    }
  }
  for (const name of [
    "a.b",
    "a..b",
    "...",
    "~a",
    "a%20b",
    "100%25",
    "caf%C3%A9",
    "a,b",
    "a'b",
    "@",
  ]) {
    t.strictSame(statusesOf(await sendLine(`GET /db/main/files/${name}`)), [200], name);
    t.match(witness.takeBytes(), `GET /db/main/files/${name} HTTP/1.1`, "as it was sent");
  }
});

t.test("no spelling of a database is another one", async (t) => {
  const others = [
    ...["side", "MAIN", "Main", "m%41in", "%4dain", "*", "%2a", "main%20", "main%0a", "%6dain%00"],
    ...[
      "main,side",
      "main%2cside",
      "main:x",
      "main@side",
      "main&x",
      "main=side",
      "main+",
      "m%C4%B1",
    ],
    ...["%ef%bd%8dain", "main%e2%80%8b", "ma%C4%B1n", "m%61in%2e", "mai%6E%3fx", "-", ":database"],
    ...["m".repeat(64), "", "%", "main%", "main%u0000"],
  ];
  for (const name of others) {
    const text = await sendLine(`GET /db/${name}/files/a`);
    t.match(statusesOf(text), [/^40[034]$/], name);
    t.equal(witness.takeBytes(), "", name);
  }
});

t.test("a header names one database, in one spelling", async (t) => {
  const refused: string[][] = [
    [],
    ["X-Database: side"],
    ["X-Database: MAIN"],
    ["X-Database: main", "X-Database: side"],
    ["X-Database: side", "X-Database: main"],
    ["X-Database: main", "X-Database: main"],
    ["X-Database: main", "x-database: side"],
    ["X-Database: main,side"],
    ["X-Database: main\tside"],
    ["X-Database: main;side"],
    ["X-Database: =?utf-8?b?bWFpbg==?="],
    ["X-Database: "],
    ["X-Database: *"],
    ["X-Database: m\xe1in"],
    ["X_Database: main"],
    ["X.Database: main"],
  ];
  for (const headers of refused) {
    const text = await sendLine("GET /export", headers);
    t.match(statusesOf(text), [/^40[03]$/], headers.join(" and "));
    t.equal(witness.takeBytes(), "");
  }
  const beside: string[][] = [
    ["X_Database: side"],
    ["X.Database: side", "x~database: side"],
    ["Connection: x-database"],
    ["Connection: close, X-Database, x_database", "X_DATABASE: side"],
    ["X-Gatehouse-Database: side", "X_Gatehouse_Database: side"],
    ["X-Original-URL: /export?database=side", "X-Rewrite-URL: /db/side/files/a"],
    ["X-HTTP-Method-Override: DELETE", "X-Method-Override: DELETE", "X-HTTP-Method: DELETE"],
    ["X_HTTP_Method_Override: DELETE"],
    ["Upgrade: websocket", "Connection: upgrade", "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ=="],
  ];
  for (const headers of beside) {
    const text = await sendLine("GET /export", ["X-Database:  main ", ...headers]);
    t.strictSame(statusesOf(text), [200], headers.join(" and "));
    const bytes = witness.takeBytes();
    t.match(bytes, /^GET \/export HTTP\/1\.1\r\n/);
    t.strictSame(bytes.match(/^x.database: .*$/gim), ["x-database: main"]);
    t.match(bytes, /^x-gatehouse-database: main\r$/m);
    t.notMatch(bytes, /DELETE|side|upgrade/i);
  }
});

t.test("a body stays a body, whatever the method", async (t) => {
  const inner = "DELETE /db/side/files/a HTTP/1.1\r\nHost: x\r\nX-Gatehouse-User: root\r\n\r\n";
  for (const method of ["GET", "HEAD", "DELETE", "POST"]) {
    const chunked = `${inner.length.toString(16)}\r\n${inner}\r\n0\r\n\r\n`;
    for (const [line, body] of [
      [`Content-Length: ${inner.length}`, inner],
      ["Transfer-Encoding: chunked", chunked],
    ] as const) {
      for (const more of [[], ["Connection: content-length, transfer-encoding"]]) {
        const text = await sendLine(`${method} /db/main/files/a`, [line, ...more], body);
        t.strictSame(statusesOf(text), [200], `${method} ${line}`);
        const received = witness.take();
        t.equal(received.length, 1);
        t.match(received[0], {
          method,
          url: "/db/main/files/a",
          headers: { "x-gatehouse-user": "alice" },
        });
        t.equal(received[0]?.body.toString(), inner);
      }
    }
  }
});
