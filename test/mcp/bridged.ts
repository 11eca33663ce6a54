import type { Test } from "tap";
import { StdioBridge } from "../../src/mcp/stdio.ts";
import { eventually } from "../kit/eventually.ts";
import { envelope } from "./messages.ts";

/** A message, as a program reads it. */
export type Message = Readonly<Record<string, unknown>>;

/** A program that speaks lines, and the bridge that carries them. */
export class BridgedProgram {
  /** Every message that the program has been told. */
  readonly told: Message[] = [];
  /** What the bridge has said on standard error. */
  readonly errors: string[] = [];
  readonly bridge: StdioBridge;
  #nextId = 1;

  constructor(url: string) {
    this.bridge = new StdioBridge({
      url: new URL(url),
      token: "token",
      write: (line) => this.told.push(JSON.parse(line)),
      onError: (error) => this.errors.push(error instanceof Error ? error.message : "unknown"),
    });
  }

  /** Writes a line. */
  say(message: object | string): void {
    const line = typeof message === "string" ? message : JSON.stringify(message);
    this.bridge.take(Buffer.from(line));
  }

  /** Asks in a session, and waits for the answer. */
  async ask(method: string, params: object = {}): Promise<Message> {
    const id = this.#nextId++;
    this.say({ jsonrpc: "2.0", id, method, params });
    return this.#answerTo(id);
  }

  /** Asks as clients of 2026-07-28 do, and waits for the answer. */
  async askStateless(method: string, params: object = {}, meta: object = {}): Promise<Message> {
    return this.ask(method, { ...params, _meta: { ...envelope(), ...meta } });
  }

  /** Begins a session. */
  async begin(): Promise<void> {
    const clientInfo = { name: "test", version: "1.0.0" };
    const params = { protocolVersion: "2025-11-25", capabilities: {}, clientInfo };
    await this.ask("initialize", params);
    this.say({ jsonrpc: "2.0", method: "notifications/initialized" });
  }

  async #answerTo(id: number): Promise<Message> {
    const find = () => this.told.find((message) => message.id === id && !("method" in message));
    await eventually(`request ${id} is answered`, () => find() !== undefined);
    return find() ?? {};
  }
}

/** A program whose lines are carried to `url`. */
export async function startProgram(t: Test, url: string): Promise<BridgedProgram> {
  const program = new BridgedProgram(url);
  await program.bridge.start();
  t.teardown(() => program.bridge.close());
  return program;
}
