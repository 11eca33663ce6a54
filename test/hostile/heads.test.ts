import t from "tap";
import { freePort } from "../kit/free-port.ts";
import { Wire } from "../kit/wire.ts";
import { checkRefused, openSite, sendBytes, statusesOf, through } from "./kit.ts";

const metrics = `127.0.0.1:${await freePort()}`;
const site = await openSite(t, { config: `[metrics]\nlisten = "${metrics}"\n` });
const embedded = await openSite(t, { isEmbedded: true });
const ways = [
  ...site.doors.map((door) => ({ site, door })),
  { site: embedded, door: embedded.mcp },
];

/** Lines of a head that some readers forgive, each in its own way. */
const oddLines = {
  "a folded line": "X-A: b\r\n c\r\n",
  "a folded line with a tab": "X-A: b\r\n\tX-Gatehouse-User: root\r\n",
  "a value that begins on the next line": "X-A:\r\n b\r\n",
  "a line end without CR": "X-A: b\n",
  "a CR within a value": "X-A: b\rX-Gatehouse-User: root\r\n",
  "a NUL in a value": "X-A: b\0c\r\n",
  "a NUL in a name": "X-A\0: b\r\n",
  "a control character in a value": "X-A: b\x01c\r\n",
  "a DEL in a value": "X-A: b\x7fc\r\n",
  "a space before the colon": "X-A : b\r\n",
  "a tab before the colon": "X-A\t: b\r\n",
  "a space before the name": "X-A: b\r\n X-B : c\r\n",
  "an empty name": ": b\r\n",
  "a line without a colon": "X-A\r\n",
  "a name beyond ASCII": "X-\xe9: b\r\n",
  "a name with a bracket": "X(A): b\r\n",
  "a name with a quote": 'X"A: b\r\n',
};

for (const { site, door } of ways) {
  t.test(`no head with an odd line brings anything through ${door.name}`, async (t) => {
    const length = `Content-Length: ${door.body.length}\r\n`;
    for (const [what, line] of Object.entries(oddLines)) {
      for (const head of [line + length, length + line]) {
        const text = await sendBytes(site, through(door, { head }));
        checkRefused(t, text, 400, "bad_request", what);
        t.equal(site.witness.takeBytes(), "", what);
      }
    }
  });

  t.test(`${door.name} takes requests with one plain Host alone`, async (t) => {
    const hosts = [
      ...["", "a b", "a/b", "a@b", "a,b", "a, b", "a#b", "a?b", "a\\b", "a:b", "a:", "a:123456"],
      ...["[::1", "::1", "http://a", "caf\xe9", "%61", "127.0.0.1\r\nHost: 127.0.0.1"],
      ...["127.0.0.1\r\nHost: evil", "127.0.0.1\r\nhost: evil"],
    ];
    for (const host of hosts) {
      const text = await sendBytes(site, through(door, { host }));
      checkRefused(t, text, 400, "bad_request", JSON.stringify(host));
    }
    const none = through(door).replace("Host: 127.0.0.1\r\n", "");
    checkRefused(t, await sendBytes(site, none), 400, "bad_request", "none");
    t.equal(site.witness.takeBytes(), "");
    for (const host of ["127.0.0.1:1", "localhost", "[::1]:8080", "127.0.0.1"]) {
      t.strictSame(statusesOf(await sendBytes(site, through(door, { host }))), [200], host);
    }
  });

  t.test(`${door.name} speaks HTTP/1.0 and HTTP/1.1 and nothing else`, async (t) => {
    site.witness.takeBytes();
    for (const version of [
      "HTTP/0.9",
      "HTTP/2.0",
      "HTTP/1.2",
      "HTTP/3.0",
      "http/1.1",
      "HTTP/1.10",
    ]) {
      const text = await sendBytes(site, through(door, { version }));
      checkRefused(t, text, 400, "bad_request", version);
    }
    const bare = await sendBytes(site, `${door.line}\r\n\r\n`);
    checkRefused(t, bare, 400, "bad_request", "no version");
    t.equal(site.witness.takeBytes(), "");
    const old = await sendBytes(site, through(door, { version: "HTTP/1.0" }));
    t.strictSame(statusesOf(old), [200]);
    t.notMatch(old, /Transfer-Encoding/i, "an old client is not answered in chunks");
  });

  t.test(`the wish for another protocol is not heard by ${door.name}`, async (t) => {
    const length = `Content-Length: ${door.body.length}\r\n`;
    site.witness.takeBytes();
    const plain = await sendBytes(site, through(door));
    t.strictSame(statusesOf(plain), [200]);
    const usual = site.witness.takeBytes();
    for (const protocol of ["h2c", "websocket", "TLS/1.0", "h2c, websocket"]) {
      const wish = `Connection: Upgrade, HTTP2-Settings\r\nUpgrade: ${protocol}\r\n`;
      const head = `${length}${wish}HTTP2-Settings: AAMAAABkAAQAAP__\r\n`;
      const body = `${door.body}GET /open HTTP/1.1\r\nHost: x\r\n\r\n`;
      const text = await sendBytes(site, through(door, { head, body }));
      t.strictSame(statusesOf(text), [200], `${protocol}: answered as if it had not been said`);
      t.match(text, /^Connection: close\r$/m, "and what follows is not read");
      t.equal(site.witness.takeBytes(), usual);
    }
  });
}

t.test("the beginning of HTTP/2, and TLS, are answered for in HTTP/1.1", async (t) => {
  const preface = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0";
  const hello = "\x16\x03\x01\x02\0\x01\0\x01\xfc\x03\x03";
  for (const bytes of [preface, hello, "\0", "SSH-2.0-x\r\n", "EHLO x\r\n"]) {
    const text = await sendBytes(site, bytes);
    checkRefused(t, text, 400, "bad_request", JSON.stringify(bytes));
  }
  t.equal(site.witness.takeBytes(), "");
});

t.test("methods that are for proxies, or none at all, reach nothing", async (t) => {
  const refused = [
    "CONNECT /query",
    "CONNECT evil.test:443",
    "get /open",
    "G\xe9T /open",
    "GET\t/open",
  ];
  for (const line of [...refused, " GET /open", "GET /open HTTP/1.1 x", "/open", "GET"]) {
    const text = await sendBytes(site, through(site.query, { line }));
    checkRefused(t, text, 400, "bad_request", line);
  }
  const plain: [line: string, status: number][] = [
    ["TRACE /query", 405],
    ["TRACE /open", 405],
    ["TRACE /mcp", 405],
    ["OPTIONS /query", 405],
    ["OPTIONS *", 404],
    ["PURGE /open", 405],
    ["GET /query", 405],
  ];
  for (const [line, status] of plain) {
    const text = await sendBytes(site, through(site.query, { line }));
    t.strictSame(statusesOf(text), [status], line);
  }
  t.equal(site.witness.takeBytes(), "");
});

t.test("a path is one thing only", async (t) => {
  const elsewhere = [
    ...[
      "//query",
      "/query/",
      "/./query",
      "/%71uery",
      "/query;x",
      "/query%00",
      "\\query",
      "/query#x",
    ],
    ...[
      "/QUERY",
      "/query\\",
      "/../query",
      "/query/.",
      "query",
      "*",
      "/quer%79",
      "/query%20",
      "/query&",
    ],
    ...["http://127.0.0.1/query", "http://evil.test/query", "//127.0.0.1/query", "/query\xe9"],
    ...["//mcp", "/mcp/", "/MCP", "/mcp;x", "/%6dcp", "/mcp%2f", "http://127.0.0.1/mcp"],
  ];
  for (const target of elsewhere) {
    const text = await sendBytes(site, through(site.query, { line: `POST ${target}` }));
    t.strictSame(
      statusesOf(text).filter((status) => status !== 404 && status !== 400),
      [],
      target,
    );
  }
  const onRoutes = [
    ...[
      "/open/",
      "//open",
      "/open;x",
      "/open%2f",
      "/open%00",
      "/open#",
      "/open?a#b",
      "/open?#",
      "/open\\",
    ],
    ...["/db/main/stats/", "/db//stats", "/db/./stats", "/db/main/./stats", "/db/x/../main/stats"],
    ...["/db/main%2fstats/stats", "/db/main/stats;x", "/db/main%00/stats", "/db/main/stats?x#y"],
    ...[
      "/db/m\xe9in/stats",
      "/db/%2e%2e/stats",
      "/db/main\\..\\x/stats",
      "/%6fpen",
      "/OPEN",
      "/Db/main/stats",
    ],
    ...["http://evil.test/open", "http://127.0.0.1/db/main/stats"],
  ];
  for (const target of onRoutes) {
    const text = await sendBytes(site, through(site.route, { line: `GET ${target}` }));
    t.strictSame(
      statusesOf(text).filter((status) => status !== 404 && status !== 400),
      [],
      target,
    );
  }
  t.equal(site.witness.takeBytes(), "");
});

t.test("what is no request has its line in the audit and its place in the metrics", async (t) => {
  const { service } = site.gateway;
  const cases: [bytes: string, status: number, code: string][] = [
    ["garbage\r\n\r\n", 400, "bad_request"],
    [`GET / HTTP/1.1\r\nHost: x\r\nX: ${"x".repeat(20_000)}\r\n\r\n`, 431, "headers_too_large"],
    ["CONNECT x:1 HTTP/1.1\r\nHost: x:1\r\n\r\n", 400, "bad_request"],
  ];
  for (const [bytes, status, code] of cases) {
    const text = await sendBytes(site, bytes);
    checkRefused(t, text, status, code, code);
    const { request_id: requestId } = JSON.parse(text.slice(text.indexOf("{")));
    const line = await service.logged((entry) => entry.requestId === requestId);
    const { length } = text;
    t.match(line, { audit: true, status, reason: code, decision: "deny", bytes: length });
    t.match(line, { address: "127.0.0.1", msg: "request" });
    t.notMatch(JSON.stringify(line), /garbage|xxxx/, "of the bytes themselves nothing is kept");
  }
  const text = await (await fetch(`http://${metrics}/metrics`)).text();
  const counted =
    'gatehouse_requests_total{route="unknown",status="431",reason="headers_too_large"}';
  t.ok(text.includes(`${counted} 1\n`));
});

t.test("a connection on which nothing was said leaves no trace", async (t) => {
  const quiet = await openSite(t, { config: "[server]\nrequest_timeout = 1\n" });
  const wire = await Wire.open(quiet.gateway.url);
  t.equal(await wire.untilClosed(), "", "it is closed without a word");
  await sendBytes(quiet, "garbage\r\n\r\n");
  const { service } = quiet.gateway;
  await service.logged(({ reason }) => reason === "bad_request");
  t.notOk(service.log.some(({ reason }) => reason === "request_timeout"));
});
