import { mkdtempSync, readdirSync, rmSync } from "node:fs";
import { type IncomingMessage, type RequestOptions, request } from "node:http";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { text } from "node:stream/consumers";
import { pino } from "pino";
import { type Engine, startEngine } from "../../src/engine/engine.ts";

export interface Answer {
  readonly status: number;
  readonly headers: IncomingMessage["headers"];
  readonly text: string;
  /** The parsed body; integers beyond 2^53 are better looked for in `text`. */
  readonly body: { status?: string; message?: string; code?: string; data?: unknown[] };
}

/** Sends a request to `unix:/path` or `http://host:port` and reads the whole answer. */
export async function send(
  address: string,
  options: RequestOptions,
  body: string | Buffer = "",
): Promise<Answer> {
  const response = await new Promise<IncomingMessage>((resolve, reject) => {
    const outgoing = request({ ...target(address), agent: false, ...options });
    outgoing.once("response", resolve);
    outgoing.once("error", reject);
    outgoing.end(body);
  });
  const answer = await text(response);
  return {
    status: response.statusCode ?? 0,
    headers: response.headers,
    text: answer,
    body: answer === "" ? {} : JSON.parse(answer),
  };
}

export function target(address: string): RequestOptions {
  if (address.startsWith("unix:")) return { socketPath: address.slice("unix:".length) };
  const { hostname, port } = new URL(address);
  return { host: hostname, port };
}

/** Posts a query: an object, or text where the spelling matters. */
export function query(address: string, body: object | string): Promise<Answer> {
  const text = typeof body === "string" ? body : JSON.stringify(body);
  const headers = { "content-type": "application/json" };
  return send(address, { method: "POST", path: "/query", headers }, text);
}

/** A new directory, removed at the end of the test; short, since socket paths have a limit. */
export function temporaryDirectory(test: { teardown(work: () => void): void }): string {
  const directory = mkdtempSync(join(tmpdir(), "engine-"));
  test.teardown(() => rmSync(directory, { recursive: true, force: true }));
  return directory;
}

export async function startOver(
  test: { teardown(work: () => unknown): void },
  directory: string,
  options: { queryTimeLimit?: number } = {},
): Promise<Engine> {
  const engine = await startEngine({
    url: `sqlite:${join(directory, "data")}`,
    listen: `unix:${join(directory, "engine.sock")}`,
    log: pino({ level: "silent" }),
    ...options,
  });
  let closing: Promise<void> | undefined;
  const close = (): Promise<void> => {
    closing ??= engine.close();
    return closing;
  };
  test.teardown(close);
  return { address: engine.address, close };
}

export async function freshEngine(
  test: { teardown(work: () => unknown): void },
  options: { queryTimeLimit?: number } = {},
): Promise<{ engine: Engine; directory: string; ask(body: object | string): Promise<Answer> }> {
  const directory = temporaryDirectory(test);
  const engine = await startOver(test, directory, options);
  return { engine, directory, ask: (body) => query(engine.address, body) };
}

/** The files of an engine's databases, sorted; what it hides beside them is left out. */
export function databaseFiles(directory: string): string[] {
  return readdirSync(join(directory, "data"))
    .filter((name) => !name.startsWith("."))
    .sort();
}

/** A CreateTable for `main` from pairs of name and type; the first column is the primary key. */
export function createTable(table: string, columns: Record<string, string>, database = "main") {
  const definitions = Object.entries(columns).map(([name, type], index) =>
    index === 0 ? { name, type, primary_key: true } : { name, type },
  );
  return { CreateTable: { database, table, columns: definitions } };
}

export function insert(table: string, values: object[], database = "main") {
  return { Insert: { database, table, values } };
}

export function selectAll(table: string, more: object = {}, database = "main") {
  return { Select: { database, from: table, columns: ["*"], ...more } };
}
