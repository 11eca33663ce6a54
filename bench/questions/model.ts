/** Asks a model the questions, through a program that connects to `/mcp` itself. */
import { spawn } from "node:child_process";
import { once } from "node:events";
import { createServer } from "node:http";
import { buffer, text } from "node:stream/consumers";
import { z } from "zod";
import { type Ask, judge, type Outcome, type questions } from "./play.ts";
import type { Setting } from "./setting.ts";
import type { Shop } from "./shop.ts";

/** Schema tools, which do not count. */
const telling: ReadonlySet<string> = new Set([
  "whoami",
  "list_databases",
  "list_tables",
  "describe_table",
]);

const message = z.object({
  method: z.literal("tools/call"),
  params: z.object({ name: z.string(), arguments: z.unknown().optional() }),
});
const answered = z.object({
  result: z.object({ content: z.array(z.object({ text: z.string() })) }),
});

/** Counts tool calls, and the bytes that a model writes and reads for them. */
class Meter {
  calls = 0;
  bytes = 0;

  note(request: Buffer, answer: Buffer): void {
    const call = message.safeParse(parsed(request.toString()));
    if (!call.success || telling.has(call.data.params.name)) return;
    this.calls++;
    this.bytes += Buffer.byteLength(JSON.stringify(call.data.params.arguments ?? {}));
    const events = answer.toString().matchAll(/^(?:data: ?)?(\{.*\})\r?$/gm);
    for (const [, json = ""] of events) {
      const result = answered.safeParse(parsed(json));
      const [first] = result.success ? result.data.result.content : [];
      this.bytes += Buffer.byteLength(first?.text ?? "");
    }
  }

  reset(): void {
    this.calls = 0;
    this.bytes = 0;
  }
}

function parsed(json: string): unknown {
  try {
    return JSON.parse(json);
  } catch {
    return undefined;
  }
}

/** A proxy in front of `/mcp` that meters the traffic until the stack is disposed. */
async function meteredUrl(
  opened: AsyncDisposableStack,
  url: string,
  meter: Meter,
): Promise<string> {
  const server = createServer(async (request, response) => {
    const body = await buffer(request);
    const { host: _, connection: __, ...headers } = request.headers;
    const passed = Object.entries(headers).map(([name, value]) => [name, String(value)] as const);
    const { method = "POST" } = request;
    const answer = await fetch(`${url}/mcp`, {
      method,
      headers: Object.fromEntries(passed.filter(([name]) => name !== "content-length")),
      ...(body.length > 0 ? { body: new Uint8Array(body) } : {}),
    });
    const content = Buffer.from(await answer.arrayBuffer());
    meter.note(body, content);
    const type = answer.headers.get("content-type");
    response.writeHead(answer.status, type === null ? {} : { "content-type": type });
    response.end(content);
  }).listen(0, "127.0.0.1");
  await once(server, "listening");
  opened.defer(() => {
    server.closeAllConnections();
    server.close();
  });
  const address = server.address();
  return `http://127.0.0.1:${typeof address === "object" ? address?.port : ""}/mcp`;
}

/** Runs the program with a question on standard input; its last line is the answer. */
async function answerOf(
  command: string,
  question: string,
  env: NodeJS.ProcessEnv,
): Promise<unknown> {
  const child = spawn("sh", ["-c", command], { stdio: ["pipe", "pipe", "inherit"], env });
  child.stdin.end(question);
  const [printed] = await Promise.all([text(child.stdout), once(child, "close")]);
  const last = printed.trim().split("\n").at(-1) ?? "";
  return parsed(last) ?? last;
}

interface ModelOptions {
  readonly setting: Setting;
  /** Calls a tool without the meter, to check the state afterwards. */
  readonly ask: Ask;
  readonly shop: Shop;
  readonly asked: typeof questions;
}

export async function* askModel(
  opened: AsyncDisposableStack,
  command: string,
  { setting, ask, shop, asked }: ModelOptions,
): AsyncGenerator<Outcome> {
  const meter = new Meter();
  const GATEHOUSE_MCP_URL = await meteredUrl(opened, setting.url, meter);
  const env = { ...process.env, GATEHOUSE_MCP_URL, GATEHOUSE_TOKEN: setting.token };
  for (const [id, question] of asked) {
    meter.reset();
    const start = performance.now();
    const answer = await answerOf(command, question.question, env);
    const milliseconds = performance.now() - start;
    const { calls, bytes } = meter;
    yield { id, ...(await judge(question, answer, shop, ask)), calls, bytes, milliseconds };
  }
}
