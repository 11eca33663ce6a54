import { fromJsonSchema, type McpServer } from "@modelcontextprotocol/server";
import t, { type Test } from "tap";
import { StdioBridge } from "../../src/features/mcp/stdio.ts";
import { eventually } from "../kit/eventually.ts";
import { RecordingUpstream } from "../kit/upstream.ts";
import { envelope } from "./messages.ts";
import { openProxied } from "./proxied.ts";

type Message = Readonly<Record<string, unknown>>;

/** A program whose lines a bridge carries to `url`. */
async function startProgram(t: Test, url: string) {
  const received: Message[] = [];
  const errors: string[] = [];
  let lastId = 0;
  const bridge = new StdioBridge({
    url: new URL(url),
    token: "token",
    write: (line) => received.push(JSON.parse(line)),
    onError: (error) => errors.push(error instanceof Error ? error.message : "unknown"),
  });
  const say = (message: object) => bridge.forward(Buffer.from(JSON.stringify(message)));
  async function ask(method: string, params: object = {}): Promise<Message> {
    const id = ++lastId;
    say({ jsonrpc: "2.0", id, method, params });
    const find = () => received.find((message) => message.id === id && !("method" in message));
    await eventually(`request ${id} is answered`, () => find() !== undefined);
    return find() ?? {};
  }
  await bridge.start();
  t.teardown(() => bridge.close());
  return {
    received,
    errors,
    ask,
    askStateless: (method: string, params: object = {}, meta: object = {}) =>
      ask(method, { ...params, _meta: { ...envelope(), ...meta } }),
    async begin() {
      const clientInfo = { name: "test", version: "1.0.0" };
      await ask("initialize", { protocolVersion: "2025-11-25", capabilities: {}, clientInfo });
      say({ jsonrpc: "2.0", method: "notifications/initialized" });
    },
  };
}

const grants = { alice: { main: "ReadOnly" } } as const;
const policy = ["mirrored", "misdeclared", "test_simple_text"].map((name) => ({
  name,
  permission: "SELECT" as const,
  database: "main",
}));

/** A tool whose arguments are also headers, and one with an invalid declaration. */
function registerMirrored(server: McpServer): void {
  const properties = {
    region: { type: "string", "x-mcp-header": "Region" },
    page: { type: "integer", "x-mcp-header": "Page" },
    place: {
      type: "object",
      properties: { isFar: { type: "boolean", "x-mcp-header": "Is-Far" } },
    },
  } as const;
  const mirrored = fromJsonSchema({ type: "object", properties });
  const share = { type: "number", "x-mcp-header": "Share" } as const;
  const misdeclared = fromJsonSchema({ type: "object", properties: { share } });
  for (const [name, inputSchema] of Object.entries({ mirrored, misdeclared })) {
    server.registerTool(name, { description: "Mirrors.", inputSchema }, () => ({
      content: [{ type: "text", text: "mirrored" }],
    }));
  }
}

async function openMirrored(t: Test) {
  const { endpoint, fixture } = await openProxied(t, { grants, policy, more: registerMirrored });
  return { fixture, program: await startProgram(t, endpoint.url) };
}

const region = "Zürich";
const call = { name: "mirrored", arguments: { region, page: 7, place: { isFar: true } } };
const mirroredHeaders = {
  "mcp-param-region": `=?base64?${Buffer.from(region).toString("base64")}?=`,
  "mcp-param-page": "7",
  "mcp-param-is-far": "true",
};

t.test("arguments that a listed tool declares as headers are sent as headers", async (t) => {
  const { program, fixture } = await openMirrored(t);
  t.match(await program.askStateless("tools/list"), {
    result: { tools: [{ name: "test_simple_text" }, { name: "mirrored" }] },
  });
  fixture.take();
  t.match(await program.askStateless("tools/call", call), {
    result: { content: [{ text: "mirrored" }] },
  });
  const [received, ...others] = fixture.take();
  t.match(received?.headers, mirroredHeaders);
  t.same(others, [], "without a retry");
  const some = { name: "mirrored", arguments: { region: null, page: 2 ** 53, place: {} } };
  await program.askStateless("tools/call", some);
  const names = fixture.take().flatMap(({ headers }) => Object.keys(headers));
  const params = names.filter((name) => name.startsWith("mcp-param-"));
  t.same(params, [], "no header without a value");
});

t.test("a tool with an invalid header declaration is not listed", async (t) => {
  const { program } = await openMirrored(t);
  await program.askStateless("tools/list");
  const { result } = await program.askStateless("tools/list");
  t.equal(program.errors.length, 1, "reported once");
  t.notMatch(JSON.stringify(result), "misdeclared");
  t.match(program.errors, [
    /The tool misdeclared is unavailable: x-mcp-header of share is not on a/,
  ]);
});

t.test("a program that never lists the tools can call one with header arguments", async (t) => {
  const { program, fixture } = await openMirrored(t);
  const meta = { progressToken: "token" };
  t.match(await program.askStateless("tools/call", call, meta), {
    result: { content: [{ text: "mirrored" }] },
  });
  const [first, list, second, ...others] = fixture.take();
  t.match(first?.headers, { "mcp-method": "tools/call", "mcp-param-region": undefined });
  t.match(list?.headers, { "mcp-method": "tools/list" });
  t.notMatch(list?.body, "progressToken");
  t.match(second?.headers, mirroredHeaders);
  t.equal(second?.body, first?.body);
  t.same(others, []);
  t.equal(program.received.length, 1, "the program receives only its own response");
  t.match(program.errors, [/misdeclared/]);
  t.equal(program.errors.length, 1);
});

t.test("a session that the server has lost is started again once", async (t) => {
  const { endpoint, fixture } = await openProxied(t, { grants });
  const program = await startProgram(t, endpoint.url);
  await program.begin();
  const text = { result: { content: [{ text: /simple text/ }] } };
  const simple = { name: "test_simple_text" };
  t.match(await program.ask("tools/call", simple), text);
  await fixture.loseSessions();
  fixture.take();
  const answers = await Promise.all([
    program.ask("tools/call", simple),
    program.ask("tools/call", simple),
  ]);
  t.match(answers, [text, text]);
  const received = fixture.take();
  const handshakes = received.filter(({ body }) => body.includes('"initialize"'));
  t.equal(handshakes.length, 1, "one handshake for both calls");
  t.equal(handshakes[0]?.headers["mcp-session-id"], undefined);
  t.ok(received.some(({ body }) => body.includes("notifications/initialized")));
  t.equal(program.received.length, 4, "the program receives only its own responses");
});

t.test("a session that is lost again is an error after one retry", async (t) => {
  const upstream = await new RecordingUpstream().listen(t);
  upstream.answer = ({ body }, response) => {
    const isHandshake = body.includes("initialize");
    const result = { protocolVersion: "2025-11-25", capabilities: {} };
    const { id = null } = body.length === 0 ? {} : JSON.parse(body.toString());
    const headers = { "content-type": "application/json", "mcp-session-id": "s" };
    response.writeHead(isHandshake ? 200 : 404, headers);
    response.end(JSON.stringify({ jsonrpc: "2.0", id, result }));
  };
  const program = await startProgram(t, `${upstream.url}/mcp`);
  await program.begin();
  t.match(await program.ask("tools/list"), { error: { code: -32603, data: { status: 404 } } });
  const lists = upstream.received.filter(({ body }) => body.includes("tools/list"));
  t.equal(lists.length, 2, "one retry");
  t.match(program.errors, [/404/]);
});

t.test("a response whose stream is cut is resumed", async (t) => {
  const upstream = await new RecordingUpstream().listen(t);
  const result = { protocolVersion: "2025-11-25", capabilities: {} };
  upstream.answer = ({ method, headers, body }, response) => {
    const { id, method: rpcMethod } = body.length === 0 ? {} : JSON.parse(body.toString());
    const answer = (members: object) => JSON.stringify({ jsonrpc: "2.0", ...members });
    if (rpcMethod === "initialize") {
      response.writeHead(200, { "content-type": "application/json", "mcp-session-id": "s" });
      response.end(answer({ id, result }));
    } else if (rpcMethod === "tools/call") {
      const progress = answer({ method: "notifications/progress", params: { progress: 1 } });
      response.writeHead(200, { "content-type": "text/event-stream" });
      response.end(`id: 7\nretry: 10\ndata: ${progress}\n\n`);
    } else if (method === "GET" && headers["last-event-id"] === "7") {
      response.writeHead(200, { "content-type": "text/event-stream" });
      response.end(`id: 8\ndata: ${answer({ id: 2, result: { content: [] } })}\n\n`);
    } else response.writeHead(method === "GET" ? 405 : 202).end();
  };
  const { endpoint } = await openProxied(t, { grants, target: `${upstream.url}/mcp` });
  const program = await startProgram(t, endpoint.url);
  await program.begin();
  t.match(await program.ask("tools/call", { name: "test_simple_text" }), {
    id: 2,
    result: { content: [] },
  });
  const [, progress] = program.received;
  t.match(progress, { method: "notifications/progress", params: { progress: 1 } });
  const taken = upstream.received.filter(({ headers }) => "last-event-id" in headers);
  t.match(taken, [{ method: "GET", headers: { "mcp-session-id": "s", "last-event-id": "7" } }]);
  t.same(program.errors, []);
});
