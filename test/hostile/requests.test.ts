import { STATUS_CODES } from "node:http";
import t, { type Test } from "tap";
import { grant } from "../access/kit.ts";
import { sendRaw } from "../gateway/kit.ts";
import { staffedHome, tokenOf } from "../journeys/staff.ts";
import { ask } from "../kit/client.ts";
import { startGateway } from "../kit/gateway.ts";
import { select } from "../kit/queries.ts";
import { RawUpstream, wireAnswer } from "../kit/raw-upstream.ts";
import { tables } from "../kit/tables.ts";
import { Wire } from "../kit/wire.ts";
import { words } from "../kit/words.ts";
import { statelessCall } from "../mcp/messages.ts";
import { TestIssuer } from "../oauth/issuer.ts";
import { reserveMetrics } from "../observe/exposition.ts";
import {
  checkRefused,
  type Door,
  type Odd,
  openSite,
  type Site,
  sendBytes,
  statusesOf,
  through,
} from "./kit.ts";
import { Witness } from "./witness.ts";

// Everything is started before the first test, since tap may end a file whose tests have all run.
const { section, value } = await reserveMetrics();
const site = await openSite(t, { config: section });
const embedded = await openSite(t, { isEmbedded: true });
const publicUrl = "https://gate.example.com";
const issuer = await TestIssuer.start(t);
const answering = await new RawUpstream((socket) => {
  socket.write(wireAnswer('{"status":"success","data":[]}'));
}).listen(t);
const issuing = await startGateway(t, {
  home: await staffedHome(t, ["root * Owner"], grant("staff:alice", "main", "ReadWrite")),
  upstream: answering.url,
  config: `[server]\npublic_url = "${publicUrl}"\n[[mcp.authorization_servers]]\nissuer = "${issuer.url}"\nprefix = "staff"\n`,
});
const ofGateway = await tokenOf(issuing, "root");
const ofIssuer = await issuer.sign(`${publicUrl}/mcp`, { claims: { jti: "j-1" } });
const reading = { methods: ["GET", "POST"], access: "SELECT" };
const routes = tables("routes", [
  {
    path: "/db/:database/files/:name",
    ...reading,
    methods: ["GET", "POST", "DELETE"],
    "values.name": "any",
  },
  { path: "/export", ...reading, database_header: "X-Database" },
  { path: "/public/:name", access: "public", "values.name": "any" },
]);

const routeWitness = await new Witness().listen(t);
const grants = ["root * Owner", "alice main ReadOnly", "bob side ReadWrite"];
const gateway = await startGateway(t, {
  home: await staffedHome(t, grants),
  upstream: routeWitness.url,
  config: routes,
});
const alice = await tokenOf(gateway, "alice");

const ways = [
  ...site.doors.map((door) => ({ site, door })),
  { site: embedded, door: embedded.mcp },
];

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

/** Checks that each request gets 400 and that none of its bytes reach the upstream. */
async function checkAllRefused(
  t: Test,
  { site, door }: { readonly site: Site; readonly door: Door },
  requests: Readonly<Record<string, Odd>>,
): Promise<void> {
  for (const [what, odd] of Object.entries(requests)) {
    checkRefused(t, await sendBytes(site, through(door, odd)), 400, "bad_request", what);
    t.equal(site.witness.takeBytes(), "", what);
  }
}

for (const { site, door } of ways) {
  t.test(`a head with a malformed line is refused by ${door.name}`, async (t) => {
    const length = `Content-Length: ${door.body.length}\r\n`;
    for (const [what, line] of Object.entries(oddLines)) {
      const requests = {
        [what]: { head: line + length },
        [`${what}, last`]: { head: length + line },
      };
      await checkAllRefused(t, { site, door }, requests);
    }
  });

  t.test(`${door.name} accepts only requests with one valid Host`, async (t) => {
    const hosts = [
      ...words(`
      a/b a@b a,b a#b a?b a:b a: a:123456 [::1 ::1 http://a %61
    `),
      "",
      "a b",
      "a, b",
      "a\\b",
      "caf\xe9",
      "127.0.0.1\r\nHost: 127.0.0.1",
      "127.0.0.1\r\nHost: evil",
      "127.0.0.1\r\nhost: evil",
    ];
    const requests = hosts.map((host) => [JSON.stringify(host), { host }]);
    await checkAllRefused(t, { site, door }, Object.fromEntries(requests));
    const none = through(door).replace("Host: 127.0.0.1\r\n", "");
    checkRefused(t, await sendBytes(site, none), 400, "bad_request", "none");
    t.equal(site.witness.takeBytes(), "");
    for (const host of ["127.0.0.1:1", "localhost", "[::1]:8080", "127.0.0.1"]) {
      t.strictSame(statusesOf(await sendBytes(site, through(door, { host }))), [200], host);
    }
  });

  t.test(`${door.name} accepts only HTTP/1.0 and HTTP/1.1`, async (t) => {
    site.witness.takeBytes();
    const versions = ["HTTP/0.9", "HTTP/2.0", "HTTP/1.2", "HTTP/3.0", "http/1.1", "HTTP/1.10"];
    const requests = versions.map((version) => [version, { version }]);
    await checkAllRefused(t, { site, door }, Object.fromEntries(requests));
    const bare = await sendBytes(site, `${door.line}\r\n\r\n`);
    checkRefused(t, bare, 400, "bad_request", "no version");
    t.equal(site.witness.takeBytes(), "");
    const old = await sendBytes(site, through(door, { version: "HTTP/1.0" }));
    t.strictSame(statusesOf(old), [200]);
    t.notMatch(old, /Transfer-Encoding/i, "HTTP/1.0 knows no chunks");
  });

  t.test(`${door.name} ignores a request for another protocol`, async (t) => {
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
      t.strictSame(statusesOf(text), [200], protocol);
      t.match(text, /^Connection: close\r$/m, "what follows is not read");
      t.equal(site.witness.takeBytes(), usual);
    }
  });
}

t.test("bytes of HTTP/2, TLS and other protocols get a refusal in HTTP/1.1", async (t) => {
  const preface = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0";
  const hello = "\x16\x03\x01\x02\0\x01\0\x01\xfc\x03\x03";
  for (const bytes of [preface, hello, "\0", "SSH-2.0-x\r\n", "EHLO x\r\n"]) {
    const text = await sendBytes(site, bytes);
    checkRefused(t, text, 400, "bad_request", JSON.stringify(bytes));
  }
  t.equal(site.witness.takeBytes(), "");
});

t.test("methods for proxies and invalid methods are not forwarded", async (t) => {
  const refused = ["CONNECT /query", "CONNECT evil.test:443", "get /open", "G\xe9T /open"];
  refused.push("GET\t/open", " GET /open", "GET /open HTTP/1.1 x", "/open", "GET");
  const requests = refused.map((line) => [line, { line }]);
  await checkAllRefused(t, { site, door: site.query }, Object.fromEntries(requests));
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

t.test("other spellings of a path do not reach its endpoint", async (t) => {
  const elsewhere = [
    ...words(`
    //query /query/ /./query /%71uery /query;x /query%00 /query#x /QUERY /../query /query/. query *
    /quer%79 /query%20 /query& //127.0.0.1/query //mcp /mcp/ /MCP /mcp;x /%6dcp /mcp%2f
    http://127.0.0.1//query http://127.0.0.1/%71uery http://127.0.0.1/http://x/query http:/query
    http:///query http://a@127.0.0.1/query http://127.0.0.1:x/query ftp://127.0.0.1/query
    http:127.0.0.1/query http://a,b/query
  `),
    "\\query",
    "/query\\",
    "/query\xe9",
    "http://127.0.0.1\\/query",
  ];
  const onRoutes = [
    ...words(`
    /open/ //open /open;x /open%2f /open%00 /open# /open?a#b /open?# /db/main/stats/ /db//stats
    /db/./stats /db/main/./stats /db/x/../main/stats /db/main%2fstats/stats /db/main/stats;x
    /db/main%00/stats /db/main/stats?x#y /db/%2e%2e/stats /%6fpen /OPEN /Db/main/stats
    http://127.0.0.1/open/ http://127.0.0.1/db/./stats http://127.0.0.1/open#
  `),
    "/open\\",
    "/db/m\xe9in/stats",
    "/db/main\\..\\x/stats",
  ];
  for (const [door, method, targets] of [
    [site.query, "POST", elsewhere],
    [site.route, "GET", onRoutes],
  ] as const) {
    for (const target of targets) {
      const text = await sendBytes(site, through(door, { line: `${method} ${target}` }));
      const others = statusesOf(text).filter((status) => status !== 404 && status !== 400);
      t.strictSame(others, [], target);
    }
  }
  t.equal(site.witness.takeBytes(), "");
});

t.test("a target in absolute form is read as its path and its host", async (t) => {
  for (const origin of ["http://127.0.0.1", "HTTPS://example.com:8443", "http://[::1]:80"]) {
    for (const [door, line] of [
      [site.query, `POST ${origin}/query`],
      [site.mcp, `POST ${origin}/mcp`],
      [site.route, `GET ${origin}/open?a=1`],
    ] as const) {
      site.witness.takeBytes();
      const answer = statusesOf(await sendBytes(site, through(door, { line })));
      const isRefused = door === site.mcp && origin.includes("example.com");
      t.strictSame(answer, [isRefused ? 403 : 200], line);
      const bytes = site.witness.takeBytes();
      t.notMatch(bytes, /^(?:GET|POST) http/i, "its path is forwarded");
      if (door === site.route) {
        t.match(bytes, "GET /open?a=1 HTTP/1.1");
        t.match(
          bytes,
          new RegExp(`x-forwarded-host: ${RegExp.escape(origin.split("//")[1] ?? "")}`, "i"),
        );
      }
    }
  }
  const home = await sendBytes(
    site,
    "GET http://127.0.0.1?x HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n",
  );
  t.strictSame(statusesOf(home), [404], "an empty path is /");
  for (const host of ["a b", "a@b", ""]) {
    const line = "POST http://127.0.0.1/query";
    checkRefused(
      t,
      await sendBytes(site, through(site.query, { line, host })),
      400,
      "bad_request",
      `Host: ${host}`,
    );
  }
});

t.test("bytes that are not a request are audited and counted", async (t) => {
  const { service } = site.gateway;
  const cases: [bytes: string, status: number, code: string][] = [
    ["garbage\r\n\r\n", 400, "bad_request"],
    [`GET / HTTP/1.1\r\nHost: x\r\nX: ${"x".repeat(20_000)}\r\n\r\n`, 431, "headers_too_large"],
    ["CONNECT x:1 HTTP/1.1\r\nHost: x:1\r\n\r\n", 400, "bad_request"],
  ];
  for (const [bytes, status, code] of cases) {
    const text = await sendBytes(site, bytes);
    checkRefused(t, text, status, code, code);
    t.ok(text.startsWith(`HTTP/1.1 ${status} ${STATUS_CODES[status]}\r\n`));
    const { request_id: requestId } = JSON.parse(text.slice(text.indexOf("{")));
    const line = await service.logged((entry) => entry.requestId === requestId);
    const { length } = text;
    t.match(line, { audit: true, status, reason: code, decision: "deny", bytes: length });
    t.match(line, { address: "127.0.0.1", msg: "request" });
    t.notMatch(JSON.stringify(line), /garbage|xxxx/, "the bytes themselves are not logged");
  }
  const labels = 'route="unknown",status="431",reason="headers_too_large"';
  t.equal(await value(`gatehouse_requests_total{${labels}}`), 1);
});

t.test("a silent connection is closed without an audit line", async (t) => {
  const quiet = await openSite(t, { config: "[server]\nrequest_timeout = 1\n" });
  const wire = await Wire.open(quiet.gateway.url);
  t.equal(await wire.untilClosed(), "", "it is closed without a response");
  await sendBytes(quiet, "garbage\r\n\r\n");
  const { service } = quiet.gateway;
  await service.logged(({ reason }) => reason === "bad_request");
  t.notOk(service.log.some(({ reason }) => reason === "request_timeout"));
});

const chunked = "Transfer-Encoding: chunked\r\n";
const close = "Connection: close\r\n";
const smuggled = "GET /smuggled HTTP/1.1\r\nHost: x\r\n\r\n";

const trailers =
  "X-Gatehouse-User: root\r\nHost: evil\r\nAuthorization: Bearer x\r\nConnection: host\r\n";

interface Shape {
  readonly head: string;
  readonly body: string;
}

function chunk({ body }: Door, spell = (hex: string) => hex, end = "\r\n0\r\n\r\n"): string {
  return `${spell(body.length.toString(16))}\r\n${body}${end}`;
}

function brokenShapes(door: Door): Record<string, Shape> {
  const { body } = door;
  const { length } = body;
  const whole = chunk(door);
  const lengths = [
    `+${length}`,
    `0x${length.toString(16)}`,
    `-${length}`,
    `${length} ,${length}`,
    `${length}, ${length}`,
    `${length} ${length}`,
    `0${length}`,
    `${length}.0`,
    `${length}e0`,
    "",
    "99999999999999999999999",
    "18446744073709551615",
    "9007199254740993",
    "ten",
  ];
  const codings = [
    "chunked, identity",
    "identity, chunked",
    "gzip, chunked",
    "chunked, chunked",
    ", chunked",
    "chunked,",
    "xchunked",
    "chunkedx",
    "chunked;q=1",
    '"chunked"',
    "identity",
    "gzip",
    "",
    "\x0bchunked",
    "chunked\t",
    "chunk\xe9d",
    "\r\n chunked",
  ];
  const sizes = [" ", "\t", "+", "-", "0x", "1000000000000000", "\x00", "\u00b9", "_", "."];
  return {
    "CL.TE": { head: `Content-Length: ${length}\r\n${chunked}`, body: `0\r\n\r\n${smuggled}` },
    "TE.CL": { head: `${chunked}Content-Length: 4\r\n`, body: whole + smuggled },
    "two equal lengths": { head: `Content-Length: ${length}\r\n`.repeat(2), body },
    "two lengths": { head: `Content-Length: ${length}\r\nContent-Length: 0\r\n`, body },
    "two codings": { head: chunked + chunked, body: whole },
    "chunked and another": { head: `${chunked}Transfer-Encoding: x\r\n`, body: whole },
    "another and chunked": { head: `Transfer-Encoding: identity\r\n${chunked}`, body: whole },
    "a space before the colon": { head: "Transfer-Encoding : chunked\r\n", body: whole },
    "a line end without CR": { head: `X-A: b\n${chunked}`, body: whole },
    ...Object.fromEntries(
      lengths.map((text) => [
        `Content-Length: ${text}`,
        { head: `Content-Length: ${text}\r\n`, body: body + smuggled },
      ]),
    ),
    ...Object.fromEntries(
      codings.map((text) => [
        `Transfer-Encoding: ${text}`,
        { head: `Transfer-Encoding: ${text}\r\n`, body: whole + smuggled },
      ]),
    ),
    ...Object.fromEntries(
      sizes.map((text) => [
        `a chunk's size after ${JSON.stringify(text)}`,
        { head: chunked, body: chunk(door, (hex) => text + hex) },
      ]),
    ),
    "a space after a chunk's size": { head: chunked, body: chunk(door, (hex) => `${hex} `) },
    "LF in an extension": { head: chunked, body: chunk(door, (hex) => `${hex};\n`) },
    "LF in a quoted extension": { head: chunked, body: chunk(door, (hex) => `${hex};a="\n"`) },
    "CR in an extension": { head: chunked, body: chunk(door, (hex) => `${hex};\rx`) },
    "bare LF in chunks": { head: chunked, body: whole.replaceAll("\r\n", "\n") },
    "bare LF after a size": { head: chunked, body: whole.replace("\r\n", "\n") },
    "bare CR after a size": { head: chunked, body: whole.replace("\r\n", "\r") },
  };
}

function brokenBodies(door: Door): Record<string, Shape> {
  return {
    "bare LF after a chunk": { head: chunked, body: chunk(door, undefined, "\n0\r\n\r\n") },
    "more than the size says": { head: chunked, body: chunk(door, undefined, "xx\r\n0\r\n\r\n") },
    "bare LF after the last chunk": {
      head: chunked,
      body: chunk(door, undefined, "\r\n0\n\r\n"),
    },
    "a length for a trailer": {
      head: chunked,
      body: chunk(door, undefined, "\r\n0\r\nContent-Length: 7\r\n\r\n"),
    },
    "a malformed trailer": { head: chunked, body: chunk(door, undefined, "\r\n0\r\nx\r\n\r\n") },
  };
}

function plainShapes(door: Door): Record<string, Shape> {
  const coded = (head: string, body = chunk(door)) => ({ head: head + close, body });
  return {
    "in capitals": coded("TRANSFER-ENCODING: CHUNKED\r\n"),
    "after a tab": coded("Transfer-Encoding:\tchunked\r\n"),
    "with an extension": coded(
      chunked,
      chunk(door, (hex) => `${hex};a="b"`),
    ),
    "with zeros before a size": coded(
      chunked,
      chunk(door, (hex) => `000${hex}`),
    ),
    "with another spelling beside it": coded(`${chunked}Content_Length: 4\r\n`),
    "with trailers": coded(chunked, chunk(door, undefined, `\r\n0\r\n${trailers}\r\n`)),
  };
}

/** Sends a valid request and returns the bytes that the upstream received. */
async function passed(
  t: Test,
  site: Site,
  bytes: string,
  what = "a valid request",
): Promise<string> {
  site.witness.takeBytes();
  t.strictSame(statusesOf(await sendBytes(site, bytes)), [200], what);
  return site.witness.takeBytes();
}

for (const { site, door } of ways) {
  t.test(`a request with ambiguous framing is refused by ${door.name}`, async (t) => {
    const expected = await passed(t, site, through(door));
    await checkAllRefused(t, { site, door }, brokenShapes(door));
    t.equal(
      await passed(t, site, through(door)),
      expected,
      "the next request is forwarded as usual",
    );
  });

  t.test(`a body that becomes invalid on its way is not completed by ${door.name}`, async (t) => {
    for (const [what, { head, body }] of Object.entries(brokenBodies(door))) {
      const text = await sendBytes(site, through(door, { head, body: body + smuggled }));
      checkRefused(t, text, 400, "bad_request", what);
      t.equal(site.witness.take().length, 0, what);
      t.notMatch(site.witness.takeBytes(), /smuggled|\r\n0\r\n/, "the body does not end upstream");
    }
  });

  t.test(`${door.name} forwards all spellings of chunks in one form`, async (t) => {
    const head = chunked + close;
    const expected = await passed(t, site, through(door, { head, body: chunk(door) }));
    for (const [what, { head, body }] of Object.entries(plainShapes(door))) {
      t.equal(await passed(t, site, through(door, { head, body }), what), expected, what);
    }
  });

  t.test(`a chunked body in HTTP/1.0 is refused by ${door.name}`, async (t) => {
    const odd = { version: "HTTP/1.0", head: chunked, body: chunk(door) };
    checkRefused(t, await sendBytes(site, through(door, odd)), 400, "bad_request", "HTTP/1.0");
    t.equal(site.witness.takeBytes(), "");
  });
}

t.test("bytes after a head without a length are a separate request", async (t) => {
  const body = smuggled.replace("\r\n\r\n", `\r\n${close}\r\n`);
  const text = await sendBytes(site, through(site.query, { head: "", body }));
  t.strictSame(statusesOf(text), [400, 404], "the body is empty, the rest a request of its own");
  t.equal(site.witness.takeBytes(), "");
});

async function forwarded(site: Site, door: Door, lines: string): Promise<string> {
  site.witness.takeBytes();
  const head = `Content-Length: ${door.body.length}\r\nConnection: close\r\n${lines}`;
  const statuses = statusesOf(await sendBytes(site, through(door, { head })));
  return statuses.join() === "200"
    ? site.witness.takeBytes().split("\r\n").sort().join("\n")
    : `answered with ${statuses}`;
}

const identities = ["User", "Role", "Database", "Anything"].flatMap((what) => [
  `X-Gatehouse-${what}`,
  `X_Gatehouse_${what}`,
  `X.Gatehouse.${what}`,
  `x-gatehouse_${what}`,
  `X~Gatehouse~${what}`,
  `X!GATEHOUSE|${what}`,
  `x-GATEHOUSE-${what}`,
  `X'Gatehouse^${what}`,
]);

const origins = words(`
  Forwarded X-Forwarded-For X-Forwarded-Proto X-Forwarded-Host X-Forwarded-User X-Forwarded-Uri
  X-Forwarded-Method X_Forwarded_For X.Forwarded.For X-Real-IP X_Real_IP X-Original-Forwarded-For
  True-Client-IP X-Client-IP Client-IP X-Cluster-Client-IP CF-Connecting-IP X-Request-Id
  X_Request_Id X.Request.Id
`);

const diversions = words(`
  X-HTTP-Method-Override X-HTTP-Method X-Method-Override X_HTTP_Method_Override X-Original-URL
  X-Rewrite-URL X-Original-URI X-Original-Method SCRIPT_NAME X-Script-Name Proxy Proxy-Authorization Proxy_Authorization
  Proxy-Connection Keep-Alive Keep_Alive TE Trailer HTTP2-Settings Content_Length Content.Length
  Transfer_Encoding Transfer.Encoding Cookie
`);

for (const { site, door } of ways) {
  t.test(`identity and forwarding headers of clients are dropped by ${door.name}`, async (t) => {
    const usual = await forwarded(site, door, "");
    t.match(usual, /^x-gatehouse-user: admin$/m);
    for (const name of [...identities, ...origins, ...diversions]) {
      t.equal(await forwarded(site, door, `${name}: evil\r\n`), usual, name);
    }
    const all = identities.map((name) => `${name}: root\r\n${name}: admin\r\n`);
    t.equal(
      await forwarded(site, door, all.slice(0, 24).join("")),
      usual,
      "many at once, each twice",
    );
  });

  t.test(`Connection removes no header of the gateway at ${door.name}`, async (t) => {
    const usual = await forwarded(site, door, "");
    const own = [
      ...words(`
      x-gatehouse-user X-Gatehouse-Role x-gatehouse-database x-request-id x-forwarded-for
      x-forwarded-proto x-forwarded-host host authorization content-length transfer-encoding
      connection close keep-alive *
    `),
      "",
    ];
    for (const name of own) {
      t.equal(await forwarded(site, door, `Connection: ${name}\r\n`), usual, name);
    }
    const all = `Connection: ${own.join(" ,\t")}\r\n`;
    t.equal(await forwarded(site, door, all + all), usual, "all of them, twice");
    const hop = "Connection: X-Hop, tracestate\r\nX-Hop: 1\r\ntracestate: a=b\r\n";
    t.equal(await forwarded(site, door, hop), usual, "other headers that it names are removed");
  });
}

t.test("identity headers of a client are removed on a public route", async (t) => {
  const { witness, query } = site;
  for (const name of identities) {
    const open = { ...query, headers: { [name]: "root" } };
    await sendBytes(site, through(open, { line: "POST /open" }));
    t.notMatch(witness.takeBytes(), /gatehouse/i, name);
  }
});

const list = statelessCall("tools/list");

const doors = [
  { name: "a query", line: "POST /query", body: select, headers: {}, token: ofGateway },
  { ...list, name: "/mcp with a login token", line: "POST /mcp", token: ofGateway },
  { ...list, name: "/mcp with another issuer's token", line: "POST /mcp", token: ofIssuer },
];

const right = ["Bearer @", "bearer @", "bEaReR @", "BEARER   @  ", "Bearer @\t", "\tBearer @"];

/** Invalid values of the header, in which @ is the token. */
function wrongSpellings(token: string): string[] {
  const [start, end] = [token.slice(0, -4), token.slice(-4)];
  return [
    "",
    "Bearer",
    "Bearer ",
    "Bearer null",
    "Bearer undefined",
    "Bearer.",
    "Bearer .",
    "@",
    "Bearer@",
    "Bearer\t@",
    "Bearer \t@",
    "Bearer\t @",
    "Bearer\u00a0@",
    "Bearer \u00a0@",
    "Bearer: @",
    "Bearer=@",
    '"Bearer" @',
    "Bearer @ x",
    "Bearer @ @",
    "Bearer @\t@",
    "Bearer @;",
    "Bearer @,",
    "Bearer ,@",
    "Bearer @,Bearer @",
    "Bearer @, Bearer @",
    "Basic x, Bearer @",
    "Bearer @, Basic x",
    'Bearer "@"',
    'Bearer token="@"',
    "Bearer token=@",
    "Bearer <@>",
    "Basic @",
    "Token @",
    "JWT @",
    "DPoP @",
    "Bearers @",
    "Bearer Bearer @",
    "Bearer @\u00e9",
    "B\u00e9arer @",
    "Bearer @=",
    "Bearer @==",
    "Bearer @.",
    "Bearer @\u00a0",
    "Bearer @%20",
    `Bearer @${"A".repeat(12_000)}`,
    "Bearer ..",
    `Bearer ${start} ${end}`,
    `Bearer ${start}\t${end}`,
    `Bearer ${token.slice(0, -2)}+/`,
    ...[". ", " .", "%2E"].map((dot) => `Bearer ${token.replaceAll(".", dot)}`),
    `Basic ${Buffer.from(`admin:${token}`).toString("base64")}`,
  ];
}

for (const { name, line, body, headers, token } of doors) {
  t.test(`only one spelling of a token is accepted for ${name}`, async (t) => {
    const send = async (authorization: string) => {
      const all = { "Content-Type": "application/json", ...headers };
      const fields = Object.entries(all).map(([name, value]) => `${name}: ${value}`);
      const lines = [`${line} HTTP/1.1`, ...fields, `Authorization: ${authorization}`];
      return sendRaw(issuing.url, [...lines, "Host: gate.example.com"], body);
    };
    const spell = (form: string) => form.replaceAll("@", token);
    for (const form of right) t.equal((await send(spell(form))).status, 200, form);
    for (const form of wrongSpellings(token)) {
      const { status, head, text } = await send(spell(form));
      const what = JSON.stringify(form.replaceAll(token, "<token>"));
      t.equal(status, 401, what);
      t.equal(JSON.parse(text).code, "token_invalid", what);
      t.match(head, /^www-authenticate: bearer /im, what);
    }
  });
}

t.test("a client's values do not appear in the head of the response", async (t) => {
  const upstream = await new RawUpstream(() => {}).listen(t);
  const gateway = await startGateway(t, {
    upstream: upstream.url,
    config: '[server]\ntrusted_proxies = ["127.0.0.1"]\nallowed_origins = ["https://app.test"]\n',
  });
  const token = await gateway.login();
  const evil = "evil%0d%0aSet-Cookie:%20a=1";
  const hostile = {
    authorization: `Bearer ${token}`,
    origin: `https://app.test ${evil}`,
    "x-request-id": evil,
    "x-forwarded-host": evil,
    "x-forwarded-proto": evil,
    "access-control-request-method": evil,
    "access-control-request-headers": evil,
    "mcp-session-id": evil,
  };
  for (const path of [`/api/users/${evil}`, `/api/access/${evil}/${evil}`, "/mcp", `/${evil}`]) {
    for (const method of ["GET", "DELETE", "OPTIONS", "POST"]) {
      const answer = await ask(`${gateway.url}${path}`, { method, headers: hostile });
      t.ok(answer.status >= 400, `${method} ${path} is ${answer.status}`);
      t.notMatch(answer.rawHeaders.join("\n"), /evil/, `${method} ${path}`);
    }
  }
});

async function sendLine(line: string, headers: readonly string[] = [], body = ""): Promise<string> {
  const wire = await Wire.open(gateway.url);
  const own = ["Host: 127.0.0.1", `Authorization: Bearer ${alice}`, "Connection: close"];
  wire.send([`${line} HTTP/1.1`, ...own, ...headers, "", body].join("\r\n"));
  return wire.untilClosed();
}

t.test("a path that another parser could read differently is refused", async (t) => {
  const names = [
    ...words(`
    .. . ..; ..;x ..;/x a;b ; a%3bb a%3Bb %3b ..%3bx %2e%2e %2e. .%2E a%2eb %252e%252e %252E %25252e
    a%252fb %25%32%66.. %25%32%65%25%32%65 %252%65 %2%35e %252F.. a%2fb a%2Fb a%5cb a%255cb %5c..%5c a%00b a%2500b a%0ab a%0d%0aX-A:1 a%09b a%1fb
    a%7fb a%250ab a//b / a#b a%23b a%3fb a%3F % a% a%2 a%zz %u002e%u002e a%u2215b %c0%ae%c0%ae a%c0%afb %ff %e0%80%af
    %f8%80%80%80%af %ed%a0%80 %c0%80 %c1%9c
  `),
    "a\\b",
    "..\\x",
    "a b",
    "a\tb",
    "caf\xe9",
  ];
  for (const name of names) {
    for (const place of [`/db/main/files/${name}`, `/public/${name}`]) {
      for (const target of [place, `${place}?x=1`, `${place}/../../side/files/a`]) {
        const text = await sendLine(`GET ${target}`);
        t.match(statusesOf(text), [/^40[04]$/], target);
        t.equal(routeWitness.takeBytes(), "", target);
      }
    }
  }
  for (const name of "a.b a..b ... ~a a%20b 100%25 caf%C3%A9 a,b a'b @".split(" ")) {
    t.strictSame(statusesOf(await sendLine(`GET /db/main/files/${name}`)), [200], name);
    t.match(routeWitness.takeBytes(), `GET /db/main/files/${name} HTTP/1.1`, "unchanged");
  }
});

t.test("other spellings of a database name are refused", async (t) => {
  const others = [
    ...words(`
    side MAIN Main m%41in %4dain * %2a main%20 main%0a %6dain%00 main,side main%2cside main:x
    main@side main&x main=side main+ m%C4%B1 %ef%bd%8dain main%e2%80%8b ma%C4%B1n m%61in%2e
    mai%6E%3fx - :database % main% main%u0000
  `),
    "m".repeat(64),
    "",
  ];
  for (const name of others) {
    const text = await sendLine(`GET /db/${name}/files/a`);
    t.match(statusesOf(text), [/^40[034]$/], name);
    t.equal(routeWitness.takeBytes(), "", name);
  }
});

t.test("a database header is accepted with one name in one spelling", async (t) => {
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
    t.equal(routeWitness.takeBytes(), "");
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
    const bytes = routeWitness.takeBytes();
    t.match(bytes, /^GET \/export HTTP\/1\.1\r\n/);
    t.strictSame(bytes.match(/^x.database: .*$/gim), ["x-database: main"]);
    t.match(bytes, /^x-gatehouse-database: main\r$/m);
    t.notMatch(bytes, /DELETE|side|upgrade/i);
  }
});

t.test("a body stays a body with every method", async (t) => {
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
        const received = routeWitness.take();
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
