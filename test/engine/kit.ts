import { once } from "node:events";
import { readdirSync } from "node:fs";
import {
  Agent,
  type ClientRequest,
  type IncomingMessage,
  type RequestOptions,
  request,
} from "node:http";
import { join } from "node:path";
import { text } from "node:stream/consumers";
import { pino } from "pino";
import { cpuSecondsOf } from "../../bench/rig/program.ts";
import { eventually } from "../kit/eventually.ts";
import { temporaryHome } from "../kit/gateway.ts";
import { columnsOf } from "../kit/queries.ts";
import type { Teardown } from "./guarded.ts";
import { type Engine, startEngine } from "./server.ts";

export interface Answer {
  readonly status: number;
  readonly headers: IncomingMessage["headers"];
  readonly text: string;
  /** Parsed, so integers beyond 2^53 are only exact in `text`. */
  readonly body: {
    status?: string;
    message?: string;
    code?: string;
    data?: unknown[];
    request_id?: string;
    constraint?: unknown;
  };
}

/** A connection is dropped long before a server drops it, so that no request meets its end. */
const agent = new Agent({ keepAlive: true, timeout: 1000 });

/** Sends a request to `unix:/path` or `http://host:port` and reads the whole answer. */
export async function send(
  address: string,
  options: RequestOptions,
  body: string | Buffer = "",
): Promise<Answer> {
  const response = await new Promise<IncomingMessage>((resolve, reject) => {
    const outgoing = request({ ...target(address), agent, ...options });
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

/** Sends a query and returns once it is sent, without waiting for the answer. */
export async function sendOnly(
  address: string,
  body: object,
  accept = "application/json",
): Promise<ClientRequest> {
  const headers = { "content-type": "application/json", accept };
  const options = { ...target(address), method: "POST", path: "/query", headers, agent: false };
  const outgoing = request(options).on("error", () => {});
  outgoing.end(JSON.stringify(body));
  await once(outgoing, "finish");
  return outgoing;
}

/** Requests rows in a form. Resolves with the headers, before any of the body is read. */
export async function openRows(
  address: string,
  body: object,
  accept: string,
): Promise<IncomingMessage> {
  const outgoing = await sendOnly(address, body, accept);
  const [response]: IncomingMessage[] = await once(outgoing, "response");
  if (response === undefined) throw new Error("no response");
  return response;
}

export async function rowsAs(address: string, body: object, accept: string) {
  const response = await openRows(address, body, accept);
  const type = response.headers["content-type"] ?? "";
  return { status: response.statusCode ?? 0, type, text: await text(response) };
}

function linesIn(chunk: Buffer): number {
  let lines = 0;
  for (let at = chunk.indexOf(10); at !== -1; at = chunk.indexOf(10, at + 1)) lines += 1;
  return lines;
}

/** Reads a body to its end: whether the connection was cut, and the number of lines. */
export async function endOf(response: IncomingMessage): Promise<{ isCut: boolean; lines: number }> {
  let lines = 0;
  try {
    for await (const chunk of response) lines += linesIn(chunk);
    return { isCut: false, lines };
  } catch {
    return { isCut: true, lines };
  }
}

/** Creates two tables that `endlessSelect` joins to billions of rows without a useful index. */
export async function fillForJoin(ask: (body: object) => Promise<Answer>): Promise<void> {
  const rows = Array.from({ length: 1500 }, (_, id) => ({ key: id, id, k: 1 }));
  for (const table of ["a", "b"]) {
    await ask(createTable(table, { key: "int", id: "int", k: "int" }));
    await ask(insert(table, rows));
  }
}

/** A Select that runs for minutes before its first row. */
export const endlessSelect = {
  Select: {
    database: "main",
    from: "a",
    columns: ["a.id"],
    order_by: { column: "b.id" },
    limit: 1,
    join: [
      { table: "b", on: "a.k = b.k", join_type: "INNER" },
      { table: "a", as: "c", on: "c.k = b.k", join_type: "INNER" },
    ],
  },
};

/**
 * Sends `endlessSelect`, and waits until a SQLite process works on it. Otherwise a request that is sent
 * later could arrive first, and the query run in another process.
 */
export async function stallIn(worker: number, address: string): Promise<ClientRequest> {
  const before = cpuSecondsOf(worker);
  const stalled = await sendOnly(address, endlessSelect);
  await eventually("the query runs", () => cpuSecondsOf(worker) > before + 0.05);
  return stalled;
}

/** A new directory, removed at the end of the test; short, since socket paths have a limit. */
export async function startOver(
  test: Teardown,
  directory: string,
  options: { queryTimeLimit?: number } = {},
): Promise<Engine> {
  const engine = await startEngine({
    url: `sqlite:${join(directory, "data")}`,
    log: pino({ level: "silent" }),
    ...options,
  });
  let closing: Promise<void> | undefined;
  const close = (): Promise<void> => {
    closing ??= engine.close();
    return closing;
  };
  test.teardown(close);
  return { ...engine, close };
}

export async function freshEngine(
  test: Teardown,
  options: { queryTimeLimit?: number } = {},
): Promise<{ engine: Engine; directory: string; ask(body: object | string): Promise<Answer> }> {
  const directory = temporaryHome(test);
  const engine = await startOver(test, directory, options);
  return { engine, directory, ask: (body) => query(engine.address, body) };
}

/** The files of an engine's databases, sorted, without hidden ones. */
export function databaseFiles(directory: string): string[] {
  return readdirSync(join(directory, "data"))
    .filter((name) => !name.startsWith("."))
    .sort();
}

/** A CreateTable with `columnsOf`. */
export function createTable(
  table: string,
  columns: Parameters<typeof columnsOf>[0],
  database = "main",
) {
  return { CreateTable: { database, table, columns: columnsOf(columns) } };
}

export function dropTable(table: string) {
  return { DropTable: { database: "main", table } };
}

export function createDatabase(database: string) {
  return { CreateDatabase: { database } };
}

export function dropDatabase(database: string) {
  return { DropDatabase: { database } };
}

export function insert(table: string, values: readonly object[], database = "main") {
  return { Insert: { database, table, values } };
}

export function update(table: string, set: object, where: object | null = null) {
  return { Update: { database: "main", table, set, where } };
}

export function remove(table: string, where: object | null = null) {
  return { Delete: { database: "main", table, where } };
}

export function selectAll(table: string, more: object = {}, database = "main") {
  return { Select: { database, from: table, columns: ["*"], ...more } };
}

/** The condition that a column equals a value. */
export function equal(column: string, value: unknown) {
  return { column, cmp: "=", value };
}

/** Matches an answer that refuses a query. */
export function refusal(status: number, code: string, message: RegExp | string = /./) {
  return { status, body: { status: "error", code, message } };
}
