import type { Test } from "tap";
import { StdioBridge } from "../../src/mcp/stdio.ts";
import { eventually } from "../kit/eventually.ts";
import { envelope } from "./messages.ts";

export type Message = Readonly<Record<string, unknown>>;

export class BridgedProgram {
  readonly told: Message[] = [];
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

  say(message: object | string): void {
    const line = typeof message === "string" ? message : JSON.stringify(message);
    this.bridge.forward(Buffer.from(line));
  }

  async ask(method: string, params: object = {}): Promise<Message> {
    const id = this.#nextId++;
    this.say({ jsonrpc: "2.0", id, method, params });
    return this.#answerTo(id);
  }

  async askStateless(method: string, params: object = {}, meta: object = {}): Promise<Message> {
    return this.ask(method, { ...params, _meta: { ...envelope(), ...meta } });
  }

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
