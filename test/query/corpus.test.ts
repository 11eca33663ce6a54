import { readdirSync, readFileSync } from "node:fs";
import path from "node:path";
import t from "tap";
import { DEEPEST_NESTING } from "../../src/json/reader.ts";
import { corpus } from "../kit/corpora.ts";
import { jsonVectors, type Vector } from "./json-vectors.ts";
import { insertOf, verdict } from "./kit.ts";

/** The levels that a cell of `insertOf` may add: body, Insert, values and row are around it. */
const roomInCell = DEEPEST_NESTING - 4;

function publicVectors(directory: string): Vector[] {
  return readdirSync(directory)
    .filter((name) => /^[yni]_.*\.json$/.test(name))
    .map((name) => ({ name, bytes: readFileSync(path.join(directory, name)) }));
}

const directory = corpus("json-parsing");
const vectors = [...jsonVectors, ...(directory === undefined ? [] : publicVectors(directory))];
const named = (letter: string) => vectors.filter(({ name }) => name.startsWith(letter));

/** An Insert of one row with one cell, whose bytes are given. */
function withCell(bytes: Buffer): Buffer {
  const [before = "", after = ""] = insertOf("|").split("|");
  return Buffer.concat([Buffer.from(before), bytes, Buffer.from(after)]);
}

function nesting(bytes: Buffer): number {
  let depth = 0;
  let deepest = 0;
  for (const byte of bytes) {
    if (byte === 0x5b || byte === 0x7b) depth++;
    if (byte === 0x5d || byte === 0x7d) depth--;
    deepest = Math.max(deepest, depth);
  }
  return deepest;
}

function isParsed(bytes: Buffer): boolean {
  try {
    JSON.parse(new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(bytes));
    return true;
  } catch {
    return false;
  }
}

t.test("what is no JSON is refused, as a body and as a cell", async (t) => {
  for (const { name, bytes } of named("n_")) {
    t.not(verdict(bytes), "accepted", name);
    t.not(verdict(withCell(bytes)), "accepted", name);
  }
});

t.test("what is JSON is accepted as a cell", async (t) => {
  for (const { name, bytes } of named("y_")) {
    if (nesting(bytes) > roomInCell) continue;
    t.equal(verdict(withCell(bytes)), "accepted", name);
  }
});

t.test("what a parser may refuse is accepted only if JSON.parse accepts it", async (t) => {
  for (const { name, bytes } of named("i_")) {
    const body = withCell(bytes);
    if (verdict(body) === "accepted") t.ok(isParsed(body), name);
    t.not(verdict(bytes), "accepted", name);
  }
});
