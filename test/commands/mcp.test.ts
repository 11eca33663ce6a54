import { type ChildProcessByStdio, spawn } from "node:child_process";
import { once } from "node:events";
import { writeFileSync } from "node:fs";
import path from "node:path";
import type { Readable, Writable } from "node:stream";
import { Client } from "@modelcontextprotocol/client";
import { StdioClientTransport } from "@modelcontextprotocol/client/stdio";
import { Client as EarlierClient } from "@modelcontextprotocol/sdk/client/index.js";
import { StdioClientTransport as EarlierTransport } from "@modelcontextprotocol/sdk/client/stdio.js";
import type { Test } from "tap";
import t from "tap";
import { eventually, PATIENCE_MS } from "../kit/eventually.ts";
import { startGateway, temporaryHome } from "../kit/gateway.ts";
import { cleanEnvironment, gatehouseCommand, runCommand } from "../kit/process.ts";
import { columnsOf } from "../kit/queries.ts";
import { tables } from "../kit/tables.ts";
import { FixtureServer } from "../mcp/fixture-server.ts";
import { envelope } from "../mcp/messages.ts";

const identity = { name: "test", version: "1.0.0" };
const unlimited = new AbortController().signal;

interface Reach {
  readonly url: string;
  readonly token: string;
}

function server(t: Test, { url, token }: Reach) {
  const home = temporaryHome(t);
  const env = { HOME: home, GATEHOUSE_HOME: home, GATEHOUSE_TOKEN: token };
  const [command, args] = gatehouseCommand(["mcp", "--stdio", "--url", url]);
  return { command, args, env, cwd: home, stderr: "pipe" as const };
}

interface StdioClient {
  toolNames(): Promise<string[]>;
  call(name: string, args?: Record<string, unknown>, signal?: AbortSignal): Promise<object>;
  close(): Promise<void>;
}

/** A client of the current library that speaks 2026-07-28. */
async function connectStateless(t: Test, reach: Reach): Promise<StdioClient> {
  const client = new Client(identity, { versionNegotiation: { mode: { pin: "2026-07-28" } } });
  t.teardown(() => client.close());
  await client.connect(new StdioClientTransport(server(t, reach)));
  return {
    toolNames: async () => (await client.listTools()).tools.map(({ name }) => name),
    call: (name, args = {}, signal = unlimited) =>
      client.callTool({ name, arguments: args }, { signal }),
    close: () => client.close(),
  };
}

/** A client of the earlier library, which starts with a handshake. */
async function connectEarlier(t: Test, reach: Reach): Promise<StdioClient> {
  const client = new EarlierClient(identity);
  t.teardown(() => client.close());
  await client.connect(new EarlierTransport(server(t, reach)));
  return {
    toolNames: async () => (await client.listTools()).tools.map(({ name }) => name),
    call: (name, args = {}, signal = unlimited) =>
      client.callTool({ name, arguments: args }, undefined, { signal }),
    close: () => client.close(),
  };
}

class Speaker {
  readonly #child: ChildProcessByStdio<Writable, Readable, Readable>;
  readonly #lines: AsyncIterator<string>;
  stderr = "";

  constructor(t: Test, home: string, flags: readonly string[], env: NodeJS.ProcessEnv) {
    this.#child = spawn(...gatehouseCommand(["mcp", "--stdio", ...flags]), {
      cwd: home,
      env: cleanEnvironment(home, env),
      stdio: ["pipe", "pipe", "pipe"],
      timeout: PATIENCE_MS,
    });
    t.teardown(() => this.#child.kill("SIGKILL"));
    this.#child.stderr.setEncoding("utf8").on("data", (text: string) => (this.stderr += text));
    this.#lines = this.#readLines();
  }

  async *#readLines(): AsyncGenerator<string, undefined> {
    let rest = "";
    for await (const chunk of this.#child.stdout.setEncoding("utf8")) {
      const lines = (rest + String(chunk)).split("\n");
      rest = lines.pop() ?? "";
      yield* lines;
    }
    if (rest !== "") throw new Error(`half a line: ${rest}`);
  }

  say(message: object | string): void {
    const line = typeof message === "string" ? message : JSON.stringify(message);
    this.#child.stdin.write(`${line}\n`);
  }

  /** The next line of output; empty at the end. */
  async hearLine(): Promise<string> {
    return (await this.#lines.next()).value ?? "";
  }

  async hear(): Promise<Record<string, unknown>> {
    return JSON.parse(await this.hearLine());
  }

  async ask(message: object | string): Promise<Record<string, unknown>> {
    this.say(message);
    return this.hear();
  }

  async leave(): Promise<number | null> {
    const exit = once(this.#child, "exit");
    this.#child.stdin.end();
    await exit;
    return this.#child.exitCode;
  }

  async stop(signal: NodeJS.Signals): Promise<number | null> {
    const exit = once(this.#child, "exit");
    this.#child.kill(signal);
    await exit;
    return this.#child.exitCode;
  }
}

function speak(t: Test, { url, token }: Reach): Speaker {
  return new Speaker(t, temporaryHome(t), ["--url", url], { GATEHOUSE_TOKEN: token });
}

/** A request of 2026-07-28, unless `meta` says otherwise. */
function request(id: number, method: string, params: object = {}, meta = envelope()): object {
  return { jsonrpc: "2.0", id, method, params: { ...params, _meta: meta } };
}

const gateway = await startGateway(t);

/** A gateway in front of another MCP server, of whose tools a user may call two. */
async function startFixture(t: Test) {
  const fixture = new FixtureServer();
  const upstream = await fixture.listen(t);
  const names = ["wait", "test_tool_with_progress"];
  const tools = names.map((name) => ({ name, permission: "SELECT", database: "main" }));
  const gateway = await startGateway(t, {
    upstream: "http://127.0.0.1:9",
    config: `[mcp]\nupstream = "${upstream}"\n${tables("mcp.tools", tools)}`,
  });
  const token = await gateway.addUser("alice", "ReadOnly");
  return { fixture, gateway, reach: { url: gateway.url, token } };
}

const fronting = await startFixture(t);
const { fixture, reach } = fronting;
t.beforeEach(() => void fixture.take());
const untilRunning = () =>
  eventually("the call is running", () =>
    fixture.received.some(({ body }) => body.includes('"wait"')),
  );

t.test("clients of both protocol generations get the tools that their role allows", async (t) => {
  const reach = { url: gateway.url, token: await gateway.addUser("reader", "ReadOnly") };
  for (const connect of [connectStateless, connectEarlier]) {
    const client = await connect(t, reach);
    const names = await client.toolNames();
    t.ok(names.includes("select"), connect.name);
    t.notOk(names.includes("drop_table"), connect.name);
    const denied = client.call("drop_table", { database: "main", table: "t" });
    t.match(await denied, { isError: true, content: [{ text: /role_insufficient/ }] });
    t.notMatch(await client.call("list_databases"), { isError: true });
    await client.close();
  }
});

t.test("progress notifications arrive before the result", async (t) => {
  const call = { name: "test_tool_with_progress", arguments: {} };
  const clientInfo = { name: "test", version: "1.0.0" };
  const hello = { protocolVersion: "2025-11-25", capabilities: {}, clientInfo };
  const earlier = speak(t, reach);
  t.match(await earlier.ask(request(1, "initialize", hello, {})), {
    result: { protocolVersion: "2025-11-25" },
  });
  earlier.say({ jsonrpc: "2.0", method: "notifications/initialized" });
  for (const [speaker, meta] of [
    [speak(t, reach), envelope()],
    [earlier, {}],
  ] as const) {
    speaker.say(request(2, "tools/call", call, { ...meta, progressToken: "token" }));
    for (const progress of [0, 50, 100]) {
      const params = { progressToken: "token", progress };
      t.match(await speaker.hear(), { method: "notifications/progress", params });
    }
    t.match(await speaker.hear(), { id: 2, result: { content: [{ text: "done" }] } });
  }
});

t.test("cancelling a call cancels it at the server", async (t) => {
  const before = fixture.cancelled;
  for (const [at, connect] of [connectStateless, connectEarlier].entries()) {
    const client = await connect(t, reach);
    const patience = new AbortController();
    const call = client.call("wait", {}, patience.signal);
    await untilRunning();
    patience.abort();
    await t.rejects(call);
    await eventually("the call is cancelled", () => fixture.cancelled === before + at + 1);
    t.ok((await client.toolNames()).includes("wait"), "the next request is answered");
    await client.close();
    fixture.take();
  }
});

t.test("a session uses the negotiated revision and ends with the client", async (t) => {
  const client = await connectEarlier(t, reach);
  await client.toolNames();
  await client.close();
  await eventually("the session has ended", () =>
    fixture.received.some(({ method }) => method === "DELETE"),
  );
  const [first, ...others] = fixture.take();
  t.match(first?.body, '"initialize"');
  t.equal(first?.headers["mcp-session-id"], undefined);
  for (const { method, headers } of others) {
    t.match(headers, { "mcp-session-id": /./, "mcp-protocol-version": "2025-11-25" }, method);
  }
});

t.test("messages keep every digit and unusual characters", async (t) => {
  const speaker = speak(t, { url: gateway.url, token: await gateway.login() });
  const columns = columnsOf({ id: "bigint", note: "text" });
  const place = { database: "main", table: "big" };
  const make = request(1, "tools/call", { name: "create_table", arguments: { ...place, columns } });
  t.notMatch(await speaker.ask(make), { result: { isError: true } });
  // Some line readers split at U+2028.
  const values = [{ id: "ID", note: "one\u2028two" }];
  const insert = request(2, "tools/call", { name: "insert", arguments: { ...place, values } });
  const line = JSON.stringify(insert).replace('"ID"', "9007199254740993");
  t.notMatch(await speaker.ask(line), { result: { isError: true } });
  const select = { name: "select", arguments: { database: "main", from: "big", columns: ["*"] } };
  t.match(await speaker.ask(request(3, "tools/call", select)), {
    result: { structuredContent: { rows: [{ id: "9007199254740993", note: "one\u2028two" }] } },
  });
  // This name has to be encoded in a header.
  const odd = await speaker.ask(request(4, "resources/read", { uri: "gatehouse:///main/täble" }));
  t.match(odd, { id: 4, error: { code: -32602 } });
});

t.test("an invalid message gets an error, and the next one is forwarded", async (t) => {
  const speaker = speak(t, { url: gateway.url, token: await gateway.login() });
  t.match(await speaker.ask('{"jsonrpc":'), { id: null, error: { code: -32700 } });
  t.match(await speaker.ask("[]"), { id: null, error: { code: -32600 } });
  t.match(await speaker.ask('{"jsonrpc":"2.0","id":1,"id":1}'), { error: { code: -32600 } });
  t.match(await speaker.ask({ jsonrpc: "2.0", id: 2 }), { id: 2, error: { code: -32600 } });
  speaker.say("");
  t.match(await speaker.ask(request(3, "tools/list")), { id: 3, result: {} });
});

t.test("a request that the gateway refuses gets an error with the reason", async (t) => {
  const gateway = await startGateway(t, {
    upstream: "http://127.0.0.1:9",
    config: "[mcp]\nmax_body_bytes = 1024\n",
  });
  const speaker = speak(t, { url: `${gateway.url}/mcp`, token: await gateway.login() });
  t.match(await speaker.ask(request(1, "no/such")), {
    id: 1,
    error: { code: -32601, message: "Method not found" },
  });
  const long = request(2, "tools/call", { name: "x".repeat(2000) });
  t.match(await speaker.ask(long), {
    id: 2,
    error: { code: -32603, message: /1024/, data: { status: 413, code: "body_too_large" } },
  });
  await gateway.service.stop();
  t.match(await speaker.ask(request(3, "tools/list")), {
    id: 3,
    error: { message: `Cannot connect to ${gateway.url}/mcp (ECONNREFUSED)` },
  });
  t.equal(await speaker.leave(), 0);
});

t.test("a rejected token is reported to client and terminal, and never printed", async (t) => {
  const speaker = speak(t, { url: gateway.url, token: "c2VjcmV0" });
  t.match(await speaker.ask(request(1, "tools/list")), {
    id: 1,
    error: { data: { status: 401, code: "token_invalid" } },
  });
  await eventually("the error is printed", () => speaker.stderr.includes("\n"));
  const [message = ""] = speaker.stderr.split("\n");
  t.match(message, /rejected the token .*\$GATEHOUSE_TOKEN .*token issue <username>/);
  t.notMatch(speaker.stderr, "c2VjcmV0");
});

t.test("requests before the end of input are answered, also without a line feed", async (t) => {
  const token = await gateway.addUser("piper", "ReadOnly");
  const input = [1, 2].map((id) => JSON.stringify(request(id, "tools/list"))).join("\n");
  const flags = ["mcp", "--stdio", "--url", gateway.url];
  const result = await runCommand(gateway.home, flags, {
    env: { GATEHOUSE_TOKEN: token },
    input,
  });
  t.equal(result.code, 0);
  const answers = result.stdout.trim().split("\n");
  t.strictSame(new Set(answers.map((answer) => JSON.parse(answer).id)), new Set([1, 2]));
});

t.test("closing standard input cancels calls and exits with 0", async (t) => {
  const before = fixture.cancelled;
  const speaker = speak(t, reach);
  speaker.say(request(1, "tools/call", { name: "wait", arguments: {} }));
  await untilRunning();
  t.equal(await speaker.leave(), 0);
  await eventually("the call is cancelled", () => fixture.cancelled === before + 1);
  const other = speak(t, reach);
  await other.ask(request(1, "tools/list"));
  t.equal(await other.stop("SIGTERM"), 0);
});

t.test("the gateway's URL comes from the environment or the configuration", async (t) => {
  const token = await gateway.login();
  const home = temporaryHome(t);
  writeFileSync(path.join(home, "gateway.toml"), `[server]\npublic_url = "${gateway.url}"\n`);
  for (const [at, env] of [
    [temporaryHome(t), { GATEHOUSE_URL: gateway.url }],
    [home, {}],
  ] as const) {
    const speaker = new Speaker(t, at, [], { GATEHOUSE_TOKEN: token, ...env });
    t.match(await speaker.ask(request(1, "tools/list")), { id: 1, result: {} });
  }
});

t.test("an invalid command line exits with 2 and says what is allowed", async (t) => {
  const home = temporaryHome(t);
  const token = "c2VjcmV0";
  const invalid: [string[], NodeJS.ProcessEnv, RegExp][] = [
    [["--stdio"], {}, /^gatehouse: \$GATEHOUSE_TOKEN is not set; .*token issue <username>.*\n$/],
    [
      ["--stdio"],
      { GATEHOUSE_TOKEN: "two words" },
      /^gatehouse: .* does not contain a bearer token\n$/,
    ],
    [[], { GATEHOUSE_TOKEN: token }, /required option '--stdio'/],
    [["--stdio", "--url", "gate"], { GATEHOUSE_TOKEN: token }, /--url is not the URL of a gateway/],
    [["--stdio", "--url", "http://u:p@g"], { GATEHOUSE_TOKEN: token }, /--url is not the URL/],
    [["--stdio"], { GATEHOUSE_TOKEN: token, GATEHOUSE_URL: "ftp://g" }, /\$GATEHOUSE_URL is not/],
  ];
  const results = invalid.map(async ([flags, env, text]) => {
    const { code, stdout, stderr } = await runCommand(home, ["mcp", ...flags], { env });
    t.strictSame([code, stdout], [2, ""], String(text));
    t.match(stderr, text);
    t.notMatch(stderr, token);
  });
  await Promise.all(results);
});

t.test("a running call ends with an error when its user loses access", async (t) => {
  const speaker = speak(t, reach);
  speaker.say(request(1, "tools/call", { name: "wait", arguments: {} }));
  await untilRunning();
  await fronting.gateway.edit((text) =>
    `${text}\n`.replace(/\[\[acl]]\nusername = "alice"[^[]*/, ""),
  );
  let heard = await speaker.hear();
  while ("method" in heard) heard = await speaker.hear();
  t.match(heard, { id: 1, error: { code: -32603, message: "The response is incomplete" } });
});
