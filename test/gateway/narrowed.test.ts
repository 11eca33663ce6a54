/** Callers whose entries have limits besides a role. */
import { readFileSync } from "node:fs";
import { mock } from "node:test";
import { setImmediate as nextTurn } from "node:timers/promises";
import t, { type Test } from "tap";
import type { Decision } from "../../src/core/access/rights.ts";
import { runCooperatively } from "../../src/core/base/cooperative-scheduling.ts";
import { configurationSchema } from "../../src/core/config/schema.ts";
import { addFilters } from "../../src/core/http/query.ts";
import { createGrammar } from "../../src/core/query/grammar.ts";
import { LONG_BODY, parseQuery, STEP_BYTES } from "../../src/core/query/parse.ts";
import type { ParsedQuery } from "../../src/core/query/query.ts";
import { grant } from "../access/kit.ts";
import {
  beginSession,
  callTool,
  checkDenied,
  openProxied,
  revision,
  send,
} from "../journeys/mcp.ts";
import { editInForce, openStaffed, tokenOf } from "../journeys/staff.ts";
import { type Answer, auditOf, startGateway } from "../kit/gateway.ts";
import { RecordingUpstream } from "../kit/upstream.ts";
import { handshakeCall, statelessCall } from "../mcp/messages.ts";

async function narrowed(t: Test, entries: string, upstream: string, config: string) {
  const gateway = await startGateway(t, { config, upstream });
  const token = await gateway.addUser("rita", "ReadWrite");
  const attributes = 'attributes = { tenant = "acme", regions = ["eu", "us"] }\n';
  await editInForce(
    gateway,
    (text) =>
      text
        .replace(/\[\[acl\]\]\nusername = "rita"\n[^[]*/, entries)
        .replace('username = "rita"\n', `$&${attributes}`),
    16,
  );
  return { gateway, token, ask: (query: object | string) => gateway.query(query, token) };
}

const entry = (more: string) => grant("rita", "main", "ReadWrite", more);
const select = (more: object) => ({
  Select: { database: "main", from: "tickets", columns: ["id"], ...more },
});

t.test("a rate limit counts the elements of a Batch, over all workers", async (t) => {
  const upstream = await new RecordingUpstream().listen(t);
  const boundary = '[[boundaries]]\nvia = "query"\nusername = "rita"\nrate_limit = "4/hour"\n';
  const { ask, gateway } = await narrowed(
    t,
    `${entry("")}${boundary}`,
    upstream.url,
    "[server]\nworkers = 2\n",
  );
  const one = select({});
  const batch = await ask({ Batch: [one, one] });
  t.equal(batch.status, 200);
  const counted = async (answer: Answer) => (await auditOf(gateway, answer)).rates;
  const rate = { boundary: "query username=rita", limit: "4/hour" };
  t.strictSame(await counted(batch), [{ ...rate, counted: 2 }]);
  const denied = await ask({ Select: { database: "other", from: "t", columns: ["*"] } });
  t.equal(denied.status, 403);
  t.strictSame(await counted(denied), [{ ...rate, counted: 3 }], "a denied query counts");
  t.equal((await ask(one)).status, 200);
  const limited = await ask(one);
  t.equal(limited.status, 429);
  t.equal(limited.body.code, "rate_limited");
  t.ok(Number(limited.headers.get("retry-after")) > 3000, "until the window ends");
  t.match(await auditOf(gateway, limited), {
    reason: "rate_limited",
    rates: [{ ...rate, counted: 5 }],
  });
  const unread = await ask("{");
  t.equal(unread.status, 429, "an invalid query counts");
  t.strictSame(await counted(unread), [{ ...rate, counted: 6 }]);
  const others = await gateway.query(one, await gateway.login());
  t.equal(others.status, 200, "another user is not limited");
  t.equal(await counted(others), undefined);
});

t.test("a rate limit over MCP is a tool error that says when to try again", async (t) => {
  const boundary = '[[boundaries]]\nvia = "mcp"\nusername = "alice"\nrate_limit = "2/hour"\n';
  const own = await openStaffed(t, ["alice main ReadOnly"], { more: boundary });
  const foreign = await openProxied(t, ["alice main ReadOnly"]);
  await editInForce(foreign.gateway, (text) => `${text}\n${boundary}`);
  for (const [gateway, name] of [
    [own.gateway, "whoami"],
    [foreign.gateway, "test_simple_text"],
  ] as const) {
    const token = await tokenOf(gateway, "alice");
    for (let call = 0; call < 2; call++) {
      t.equal((await callTool(gateway, name, {}, token)).status, 200);
    }
    const limited = await callTool(gateway, name, {}, token);
    t.equal(limited.status, 200, name);
    const text =
      /^Failed: The rate limit .* is exceeded: try again in \d+ seconds \(rate_limited\)$/;
    const result = { isError: true, content: [{ type: "text", text }] };
    t.match(limited.body, { id: 1, result: { ...result, resultType: "complete" } });
    await checkDenied(t, gateway, limited, "rate_limited");
    const session = { "mcp-session-id": await beginSession(gateway, token), ...revision };
    const earlier = await send(
      gateway,
      handshakeCall("tools/call", { name, arguments: {} }, name === "whoami" ? revision : session),
      token,
    );
    t.match(earlier, { status: 200, body: { id: 1, result } }, "in an earlier revision");
    t.notMatch(earlier.text, "resultType");
  }
  t.equal(
    (await send(own.gateway, statelessCall("tools/list"), await tokenOf(own.gateway, "alice")))
      .status,
    200,
    "lists do not count",
  );
});

t.test("boundaries also limit routes for administrators and for every user", async (t) => {
  const upstream = await new RecordingUpstream().listen(t);
  const routes = [
    '[[routes]]\npath = "/reset"\nmethods = ["POST"]\naccess = "administrator"\n',
    '[[routes]]\npath = "/db/:database/stats"\nmethods = ["GET"]\naccess = "authenticated"\n',
  ];
  const { gateway, token } = await narrowed(t, entry(""), upstream.url, routes.join("\n"));
  const admin = await gateway.login();
  const ask = async () => {
    const reset = await gateway.send("POST", "/reset", undefined, admin);
    const stats = await gateway.send("GET", "/db/main/stats", undefined, token);
    return [reset, stats].map(({ status, body }) => body.code ?? status);
  };
  t.strictSame(await ask(), [200, 200]);
  const boundaries = [
    ['via = "query"\nrole = "ReadOnly"', "role_insufficient", 200],
    ['via = "query"\nmax_rows = 5', "not_narrowable", "not_narrowable"],
    ['via = "query"\ndatabase = "main"\nrole = "None"', 200, "not_narrowable"],
    ['via = "mcp"\nrole = "None"', 200, 200],
  ] as const;
  const before = readFileSync(gateway.accessFile, "utf8");
  for (const [keys, ...expected] of boundaries) {
    await editInForce(gateway, () => `${before}\n[[boundaries]]\n${keys}\n`);
    t.strictSame(await ask(), expected, keys);
  }
});

t.test("a rate limit counts requests to routes, also denied ones, with queries", async (t) => {
  const upstream = await new RecordingUpstream().listen(t);
  const routes = [
    '[[routes]]\npath = "/db/:database/stats"\nmethods = ["GET"]\naccess = "SELECT"\n',
    '[[routes]]\npath = "/status"\nmethods = ["GET"]\naccess = "public"\n',
    '[[routes]]\npath = "/me"\nmethods = ["GET"]\naccess = "authenticated"\n',
  ];
  const boundaries = [
    '[[boundaries]]\nvia = "query"\nusername = "rita"\nrate_limit = "6/hour"\n',
    '[[boundaries]]\nvia = "query"\ndatabase = "main"\nrate_limit = "2/hour"\n',
  ];
  const entries = `${entry("")}${boundaries.join("")}`;
  const { gateway, ask, token } = await narrowed(t, entries, upstream.url, routes.join("\n"));
  const get = async (path: string) => (await gateway.send("GET", path, undefined, token)).status;
  t.equal(await get("/db/main/stats"), 200);
  t.equal(await get("/db/other/stats"), 403, "a denied request counts");
  t.equal((await ask(select({}))).status, 200);
  const limited = await gateway.send("GET", "/db/main/stats", undefined, token);
  t.match(limited, { status: 429, body: { code: "rate_limited" } }, "of the database");
  const rates = [{ counted: 4 }, { boundary: "query database=main", limit: "2/hour", counted: 3 }];
  t.match(await auditOf(gateway, limited), { reason: "rate_limited", rates });
  t.strictSame([await get("/me"), await get("/me"), await get("/me")], [200, 200, 429]);
  t.equal(await get("/status"), 200, "a public route knows no user");
});

t.test("an open stream is cut when the entry that opened it expires", async (t) => {
  const upstream = await new RecordingUpstream().listen(t);
  upstream.answer = (_request, response) => {
    response.writeHead(200, { "content-type": "text/plain" });
    response.write("begun");
  };
  const route = '[[routes]]\npath = "/db/:database/tail"\nmethods = ["GET"]\naccess = "SELECT"\n';
  const { gateway, token } = await narrowed(t, entry(""), upstream.url, route);
  const get = () =>
    fetch(`${gateway.url}/db/main/tail`, { headers: { authorization: `Bearer ${token}` } });
  const openUntil = async (expires: Date) => {
    const lines = entry(`expires = ${expires.toISOString()}`);
    await editInForce(gateway, (text) =>
      text.replace(/\[\[acl\]\]\nusername = "rita"\n[^[]*/, lines),
    );
    const stream = await get().catch(() => undefined);
    return { expires, stream: stream?.status === 200 ? stream : undefined };
  };
  let { expires, stream } = await openUntil(new Date(Date.now() + 2000));
  // On a busy machine the entry may expire before the stream is open.
  for (let seconds = 4; stream === undefined && seconds < 100; seconds *= 2) {
    ({ expires, stream } = await openUntil(new Date(Date.now() + seconds * 1000)));
  }
  await t.rejects(async () => stream?.text(), "the stream is cut, not ended");
  t.ok(Date.now() >= expires.getTime(), "not before the entry expires");
  const after = await get();
  t.equal(after.status, 403);
  t.match(await after.json(), { code: "grant_expired" });
});

const grammar = createGrammar({ extraFields: [], operations: {}, level: "core" });
const filtering = {
  configuration: configurationSchema.parse({ server: { max_body_bytes: 8 * LONG_BODY } }),
  queries: { grammar, isEngine: false, identified: Promise.resolve() },
};
const own = { column: "tenant", cmp: "=", value: "acme" } as const;

/** A decision that adds a filter. */
function decisionsOn({ query }: ParsedQuery): readonly Decision[] {
  const filters = query.accesses.map(({ node }) => ({ node, conditions: [own], added: [own] }));
  return [{ allowed: true, reason: "allowed", role: "ReadOnly", entry: "main.a", filters }];
}

function queryOf(keys: number, length = 1): ParsedQuery {
  const value = "x".repeat(length);
  const or = Array.from({ length: keys }, () => ({ column: "id", cmp: "=", value }));
  const select = { database: "main", from: "a", columns: ["id"], where: { or } };
  const body = Buffer.from(JSON.stringify({ Select: select }));
  return { body, query: parseQuery(body, grammar) };
}

t.test("others are served while long queries are parsed again with filters", async (t) => {
  const parsed = queryOf(12_000, 200);
  t.ok(parsed.body.length > 4 * LONG_BODY);
  // Each step takes a millisecond, however fast the machine is.
  let now = 0;
  const clock = mock.method(performance, "now", () => ++now);
  let isRead = false;
  const reads = Promise.all(
    [1, 2].map(() =>
      runCooperatively(addFilters(filtering, parsed, decisionsOn(parsed), true, STEP_BYTES)),
    ),
  ).finally(() => {
    isRead = true;
    clock.mock.restore();
  });
  let turns = 0;
  for (; !isRead; turns++) await nextTurn();
  t.ok(turns > 1, `${turns} turns in between`);
  for (const { body, query } of await reads) {
    t.equal(body.length, parsed.body.length + `{"and":[${JSON.stringify(own)},]}`.length);
    t.strictSame(query.accesses[0]?.tables, ["a"]);
  }
});
