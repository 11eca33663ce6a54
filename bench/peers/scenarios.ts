import { writeFileSync } from "node:fs";
import path from "node:path";
import { insert } from "./proof.ts";
import type { AnswerSize } from "./upstream.ts";
import { reader, type World, writers } from "./world.ts";

export interface Scenario {
  readonly name: string;
  /** Approximate size of the request body. */
  readonly body: number;
  readonly answer: AnswerSize;
  readonly connections: number;
  /** True for a new connection per request. */
  readonly isClosing?: boolean;
  /** `repeated`: a few in turn; `fresh`: each one once; `denied`: of a user without the right. */
  readonly tokens: "repeated" | "fresh" | "denied";
}

const usual = { body: 80, answer: 200, connections: 32, tokens: "repeated" } as const;

/** Every system runs the first. Each of the others differs from it in one property. */
export const scenarios: readonly Scenario[] = [
  { name: "80 B query, 32 connections", ...usual },
  { name: "1 connection", ...usual, connections: 1 },
  { name: "256 connections", ...usual, connections: 256 },
  { name: "1,000 connections", ...usual, connections: 1000 },
  { name: "10 KB body", ...usual, body: 10_000 },
  { name: "1 MB body", ...usual, body: 1_000_000 },
  { name: "10 KB answer", ...usual, answer: 10_000 },
  { name: "10 MB answer", ...usual, answer: 10_000_000 },
  { name: "fresh tokens", ...usual, tokens: "fresh" },
  { name: "denied", ...usual, tokens: "denied" },
];

const row = { id: 1234, name: "Grace Hopper", email: "grace@example.com", active: true };

/** Returns a Select if small, else an Insert of rows, of about `size` bytes. */
function bodyOf(size: number, isDenied: boolean): string {
  if (isDenied) return insert;
  if (size < 200) {
    return '{"Select":{"database":"main","from":"users","columns":["id","name"],"limit":10}}';
  }
  const count = Math.ceil(size / (JSON.stringify(row).length + 1));
  const values = Array.from({ length: count }, (_, index) => ({ ...row, id: index }));
  return JSON.stringify({ Insert: { database: "main", table: "users", values } });
}

export function bodyFile(world: World, scenario: Scenario): string {
  const isDenied = scenario.tokens === "denied";
  const file = path.join(world.directory, `body-${scenario.body}-${isDenied}.json`);
  writeFileSync(file, bodyOf(scenario.body, isDenied));
  return file;
}

/** A file with one token per line; fresh tokens are created for each call. */
export async function tokenFile(
  world: World,
  algorithm: Parameters<World["token"]>[1],
  tokens: Scenario["tokens"],
  freshCount: number,
): Promise<string> {
  const file = path.join(world.directory, `tokens-${algorithm}-${tokens}`);
  const names =
    tokens === "fresh"
      ? Array.from({ length: freshCount }, (_, index) => writers[index % writers.length] ?? "")
      : writers.map((name) => (tokens === "denied" ? reader : name));
  const made: string[] = [];
  for (const name of names) made.push(await world.token(name, algorithm));
  writeFileSync(file, made.join("\n"));
  return file;
}
