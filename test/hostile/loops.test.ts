/** Bodies of the maximum size, and how long each blocks the event loop. */
import t, { type Test } from "tap";
import { cpuSecondsOf } from "../../bench/rig/program.ts";
import { eventually } from "../kit/eventually.ts";
import { startGateway, type TestGateway, temporaryHome } from "../kit/gateway.ts";
import { longestTurn, measuredEnvironment } from "../kit/loop-time.ts";
import { sampled } from "../kit/nightly.ts";
import { queryHeaders } from "../kit/queries.ts";
import { tables } from "../kit/tables.ts";
import { RecordingUpstream } from "../kit/upstream.ts";
import { Wire, wireRequest } from "../kit/wire.ts";
import { postHeaders, statelessCall } from "../mcp/messages.ts";
import { checkRefused, openSite, sendBytes, statusesOf } from "./kit.ts";

const site = await openSite(t, { config: "[server]\nmax_body_bytes = 50000000\n" });
const { gateway, witness, token } = site;
const pid = gateway.service.child.pid ?? 0;

const LONGEST_TURN_MS = 50;
/** How long the reference machine takes to parse `piece`. */
const PIECE_MS = 90;
const piece = JSON.stringify(
  Array.from({ length: 100_000 }, (_, at) => ({ [`c${at}`]: `x${at}` })),
);
/** Caches and garbage collection may slow down a turn, so the best of several counts. */
const TRIES = 10;
const LONGEST_ANSWER = 4096;
const LARGEST_BODY = 10 * 1024 * 1024;
const REST = 4096;

const limits = `max_body_bytes = ${LARGEST_BODY}\n`;

function fill(element: string): string {
  const count = Math.floor((LARGEST_BODY - REST) / (element.length + 1));
  return `${`${element},`.repeat(count - 1)}${element}`;
}

function keys(value = "0"): string {
  const count = Math.floor((LARGEST_BODY - REST) / (9 + value.length));
  return Array.from({ length: count }, (_, at) => `"k${at.toString(36)}":${value}`).join(",");
}

const long = "x".repeat(LARGEST_BODY - REST);
const escaped = "\\u0041".repeat(Math.floor((LARGEST_BODY - REST) / 6));

const table = '"database":"main","table":"t"';
const from = '"database":"main","from":"t"';
const comparison = '{"column":"a","cmp":"=","value":1}';

interface LargeOperation {
  readonly name: string;
  readonly operation: string;
  readonly tool: string;
  readonly args: () => string;
}

function inserting(name: string, values: () => string): LargeOperation {
  const args = () => `{${table},"values":[${values()}]}`;
  return { name, operation: "Insert", tool: "insert", args };
}

function selecting(name: string, fields: () => string): LargeOperation {
  return { name, operation: "Select", tool: "select", args: () => `{${from},${fields()}}` };
}

function dropping(name: string, fields: () => string): LargeOperation {
  return { name, operation: "DropTable", tool: "drop_table", args: () => `{${fields()}}` };
}

const large: readonly LargeOperation[] = [
  inserting("rows", () => fill("{}")),
  selecting("comparisons", () => `"columns":["*"],"where":{"and":[${fill(comparison)}]}`),
  selecting("invalid columns", () => `"columns":[${fill("1")}]`),
  inserting("a full cell", () => `{"a":[${fill("[]")}]}`),
  inserting("rows of a cell", () => fill('{"a":1}')),
  inserting("a row of many columns", () => `{${keys()}}`),
  inserting("a deep cell", () => `{"a":${"[".repeat(40)}${fill("1")}${"]".repeat(40)}}`),
  inserting("a cell of many keys", () => `{"a":{${keys()}}}`),
  inserting("a long cell", () => `{"a":"${long}"}`),
  inserting("an escaped cell", () => `{"a":"${escaped}"}`),
  inserting("escaped text in a cell", () => `{"a":["${escaped}"]}`),
  inserting("a long column", () => `{"${long}":1}`),
  inserting("an escaped column", () => `{"${escaped}":1}`),
  selecting("columns", () => `"columns":[${fill('"a"')}]`),
  selecting("unknown fields", () => keys("[]")),
  dropping("a long name", () => `"database":"main","table":"${long}"`),
  dropping("an escaped name", () => `"database":"${escaped}","table":"t"`),
  {
    name: "invalid columns of a table",
    operation: "CreateTable",
    tool: "create_table",
    args: () => `{${table},"columns":[${fill("{}")}]}`,
  },
];

interface LargeBody {
  readonly name: string;
  readonly body: () => string;
}

function request(method: string, params: string): string {
  return `{"jsonrpc":"2.0","id":1,"method":"${method}","params":${params}}`;
}

function callOf(tool: string, args: string): string {
  return request("tools/call", `{"name":"${tool}","arguments":${args}}`);
}

const messages: readonly LargeBody[] = [
  {
    name: "not JSON",
    body: () => `{"jsonrpc":"2.0","id":1,"method":"ping"${" ".repeat(long.length)}`,
  },
  { name: "members", body: () => `{${keys()}}` },
  { name: "a long id", body: () => `{"jsonrpc":"2.0","id":"${long}","method":"ping"}` },
  { name: "an escaped id", body: () => `{"jsonrpc":"2.0","id":"${escaped}","method":"ping"}` },
  { name: "a long method", body: () => request(long, "{}") },
  { name: "a long tool", body: () => callOf(long, "{}") },
  { name: "params", body: () => request("tools/list", `{${keys()}}`) },
  { name: "_meta of lists", body: () => request("tools/list", `{"_meta":{"a":[${fill("[]")}]}}`) },
  { name: "a long address", body: () => request("resources/read", `{"uri":"${long}"}`) },
  { name: "a response", body: () => `{"jsonrpc":"2.0","id":1,"result":{${keys()}}}` },
  { name: "a schema tool", body: () => callOf("list_tables", `{"database":"main",${keys()}}`) },
];

/** @param config the configuration, given the URL of the upstream */
async function openMeasured(t: Test, config: (url: string) => string) {
  const home = temporaryHome(t);
  const upstream = await new RecordingUpstream().listen(t);
  upstream.answer = ({ url }, response) => {
    response.writeHead(200, { "content-type": "application/json" });
    const result = { jsonrpc: "2.0", id: 1, result: { content: [] } };
    response.end(JSON.stringify(url === "/mcp" ? result : { status: "success", data: [] }));
  };
  const { url } = upstream;
  const env = measuredEnvironment(home);
  const gateway = await startGateway(t, { home, config: config(url), env, upstream: url });
  const stranger = await gateway.addUser("stranger", "ReadOnly", "elsewhere");
  return { gateway, stranger, owner: await gateway.login() };
}

async function warmUp(gateway: TestGateway, token: string): Promise<void> {
  const { headers } = statelessCall("tools/list");
  const authorization = `Bearer ${token}`;
  for (const [sent, body] of [
    [headers, statelessCall("tools/list").body],
    [postHeaders, callOf("select", "{}")],
  ] as const) {
    await gateway.request("/mcp", { method: "POST", headers: { ...sent, authorization }, body });
  }
  await gateway.query("{}", token);
}

/** How many times slower than the reference machine this one is now. */
function slowness(): number {
  const before = process.threadCpuUsage();
  JSON.parse(piece);
  const { user, system } = process.threadCpuUsage(before);
  return Math.max(1, (user + system) / 1000 / PIECE_MS);
}

async function checkEach(
  t: Test,
  gateway: TestGateway,
  bodies: readonly LargeBody[],
  token: string,
  route = "/mcp",
): Promise<void> {
  await warmUp(gateway, token);
  const headers = { ...postHeaders, authorization: `Bearer ${token}` };
  for (const { name, body: write } of sampled(bodies, 6)) {
    const body = write();
    let turn = Number.POSITIVE_INFINITY;
    for (let tries = 0; turn >= LONGEST_TURN_MS && tries < TRIES; tries++) {
      await longestTurn(gateway.home);
      const { text, status } = await gateway.request(route, { method: "POST", headers, body });
      turn = Math.min(turn, await longestTurn(gateway.home));
      t.ok(text.length < LONGEST_ANSWER, `${name}: ${text.length} bytes answered`);
      t.not(status, 413, name);
    }
    const limit = turn < LONGEST_TURN_MS ? LONGEST_TURN_MS : LONGEST_TURN_MS * slowness();
    t.ok(turn < limit, `${name}: ${turn.toFixed(1)} ms of one turn, at most ${limit.toFixed(1)}`);
  }
}

const calls = large.map(({ tool, name, args }) => ({ name, body: () => callOf(tool, args()) }));

const measured = await openMeasured(t, () => `[mcp]\n${limits}[query]\nextra_fields = ["hint"]\n`);

t.test("no tool call blocks the event loop", async (t) => {
  await checkEach(t, measured.gateway, calls, measured.owner);
});

t.test("no call without a grant and no invalid message blocks the event loop", async (t) => {
  const { gateway, stranger } = measured;
  await checkEach(t, gateway, [...calls.slice(0, 4), ...messages], stranger);
});

t.test("no message to an upstream MCP server blocks the event loop", async (t) => {
  const names = new Set(large.map(({ tool }) => tool));
  const rules = Array.from(names, (name) => ({
    name,
    permission: "SELECT",
    database_argument: "database",
  }));
  const policy = tables("mcp.tools", rules);
  const config = (url: string) => `[mcp]\n${limits}upstream = "${url}/mcp"\n${policy}`;
  const { gateway, owner } = await openMeasured(t, config);
  await checkEach(t, gateway, [...calls, ...messages], owner);
});

t.test("no query blocks the event loop", async (t) => {
  const { gateway, owner } = measured;
  const queries = large.map(({ operation, name, args }) => {
    return { name, body: () => `{"${operation}":${args()}}` };
  });
  const hinted = (hint: string) => `{"Select":{${from},"columns":["*"],"hint":${hint}}}`;
  const others = [
    { name: "an extra field of many keys", body: () => hinted(`{${keys()}}`) },
    { name: "an extra field of lists", body: () => hinted(`[${fill("[]")}]`) },
    { name: "an unknown operation", body: () => `{"${long}":{}}` },
    { name: "an escaped operation", body: () => `{"${escaped}":{}}` },
    { name: "a batch of nothing", body: () => `{"Batch":[${fill("{}")}]}` },
  ];
  await checkEach(t, gateway, [...queries, ...others], owner, "/query");
});

const cell = "\\u0061".repeat(200);
const columns = Array.from({ length: 4000 }, (_, at) => `"c${at}":"${cell}"`);
const rows = Array.from({ length: 10 }, () => `{${columns}}`);
const body = `{"Insert":{"database":"main","table":"t","values":[${rows}]}}`;

function insertBy(token: string): string {
  return wireRequest("POST /query", { ...queryHeaders(token), Connection: "close" }, body);
}

async function begin(token: string): Promise<Wire> {
  const wire = await Wire.open(gateway.url);
  const before = cpuSecondsOf(pid);
  wire.send(insertBy(token));
  await eventually("the scan runs", () => cpuSecondsOf(pid) > before + 0.03);
  return wire;
}

t.test("a token that is revoked while its body is parsed is refused", async (t) => {
  await gateway.addUser("carol", "Owner");
  const carol = await gateway.login("carol", "carol password");
  witness.take();
  const wire = await begin(carol);
  t.equal((await gateway.send("POST", "/logout", {}, carol)).status, 200);
  checkRefused(t, await wire.untilClosed(), 401, "token_revoked", "the long body");
  t.equal(witness.take().length, 0);
  t.strictSame(statusesOf(await sendBytes(site, insertBy(token))), [200], "others are served");
});
