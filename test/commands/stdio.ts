/** Programs that speak MCP over stdio, with `gatehouse mcp --stdio` as their server. */
import { type ChildProcessByStdio, spawn } from "node:child_process";
import { once } from "node:events";
import type { Readable, Writable } from "node:stream";
import { Client } from "@modelcontextprotocol/client";
import { StdioClientTransport } from "@modelcontextprotocol/client/stdio";
import { Client as EarlierClient } from "@modelcontextprotocol/sdk/client/index.js";
import { StdioClientTransport as EarlierTransport } from "@modelcontextprotocol/sdk/client/stdio.js";
import type { Test } from "tap";
import { PATIENCE_MS } from "../kit/eventually.ts";
import { temporaryHome } from "../kit/gateway.ts";
import { cleanEnvironment, gatehouseCommand } from "../kit/process.ts";

const identity = { name: "test", version: "1.0.0" };
/** Of a call that nobody cancels. */
const unlimited = new AbortController().signal;

/** Which gateway a program reaches, and as whom. */
export interface Reach {
  readonly url: string;
  readonly token: string;
}

function server(t: Test, { url, token }: Reach) {
  const home = temporaryHome(t);
  const env = { HOME: home, GATEHOUSE_HOME: home, GATEHOUSE_TOKEN: token };
  const [command, args] = gatehouseCommand(["mcp", "--stdio", "--url", url]);
  return { command, args, env, cwd: home, stderr: "pipe" as const };
}

/** What the tests need of a client, whichever library it is of. */
export interface StdioClient {
  toolNames(): Promise<string[]>;
  call(name: string, args?: Record<string, unknown>, signal?: AbortSignal): Promise<object>;
  close(): Promise<void>;
}

/** A client of the current library that speaks 2026-07-28. */
export async function connectStateless(t: Test, reach: Reach): Promise<StdioClient> {
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

/** A client of the earlier library, which begins by a handshake. */
export async function connectEarlier(t: Test, reach: Reach): Promise<StdioClient> {
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

/** A program that writes its lines itself. */
export class Speaker {
  readonly #child: ChildProcessByStdio<Writable, Readable, Readable>;
  readonly #lines: AsyncIterator<string>;
  /** Everything that was printed on standard error. */
  stderr = "";

  /** Starts `gatehouse mcp --stdio` in `home`; it ends with the test. */
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

  /** Writes a message, or a line as it is. */
  say(message: object | string): void {
    const line = typeof message === "string" ? message : JSON.stringify(message);
    this.#child.stdin.write(`${line}\n`);
  }

  /** The next line of the answers; empty if there is none any more. */
  async hearLine(): Promise<string> {
    return (await this.#lines.next()).value ?? "";
  }

  /** The next line of the answers, parsed. */
  async hear(): Promise<Record<string, unknown>> {
    return JSON.parse(await this.hearLine());
  }

  /** Writes a message and gives the next line. */
  async ask(message: object | string): Promise<Record<string, unknown>> {
    this.say(message);
    return this.hear();
  }

  /** Closes standard input, and gives the exit code. */
  async leave(): Promise<number | null> {
    const exit = once(this.#child, "exit");
    this.#child.stdin.end();
    await exit;
    return this.#child.exitCode;
  }

  /** Sends a signal, and gives the exit code. */
  async stop(signal: NodeJS.Signals): Promise<number | null> {
    const exit = once(this.#child, "exit");
    this.#child.kill(signal);
    await exit;
    return this.#child.exitCode;
  }
}

/** A program in a directory of its own that reaches the gateway by `--url`. */
export function speak(t: Test, { url, token }: Reach): Speaker {
  return new Speaker(t, temporaryHome(t), ["--url", url], { GATEHOUSE_TOKEN: token });
}
