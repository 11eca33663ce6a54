import { type Steps, visitEach } from "../slices.ts";
import { parseToml, TomlSyntaxError } from "../toml/parse.ts";
import {
  type Block,
  beginsLine,
  blocksBetween,
  hasLongStrings,
  isBlankUntil,
  nextBracket,
  type TableName,
} from "./blocks.ts";
import { commonPrefix, commonSuffix } from "./common.ts";
import { type AccessRecords, RecordError, readGrant, readUser } from "./records.ts";
import type { Grant, User } from "./snapshot.ts";

/** A table of a plainly written file, read. It knows its length, so that it can move. */
export interface ReadBlock {
  readonly length: number;
  readonly record: User | Grant;
}

/** A plainly written file, read table by table. */
export interface PlainFile {
  readonly text: string;
  readonly records: AccessRecords;
  /** Characters before the first table. */
  readonly preamble: number;
  readonly blocks: readonly ReadBlock[];
}

/** What an earlier reading has in common with a text: its first and its last blocks. */
interface Reusable {
  readonly first: readonly ReadBlock[];
  readonly last: readonly ReadBlock[];
  /** Where the new text has to be read. */
  readonly from: number;
  readonly to: number;
}

function nothingReusable(text: string): Reusable {
  return { first: [], last: [], from: nextBracket(text, 0), to: text.length };
}

/** Finds what needs not be read again: an edit leaves most of a file as it was. */
function* findReusable(text: string, earlier: PlainFile | undefined): Steps<Reusable> {
  if (earlier === undefined) return nothingReusable(text);
  const prefix = commonPrefix(earlier.text, text);
  yield;
  let from = earlier.preamble;
  let firsts = 0;
  for (const { length } of earlier.blocks) {
    // The bracket behind the block must be common too, or the block may now go on.
    if (from + length >= prefix) break;
    from += length;
    firsts++;
  }
  if (firsts === 0) return nothingReusable(text);
  const most = Math.min(earlier.text.length, text.length) - from;
  yield;
  const suffix = commonSuffix(earlier.text, text, most);
  yield;
  let to = text.length;
  let lasts = 0;
  for (let at = earlier.blocks.length - 1; at >= firsts; at--) {
    const start = to - (earlier.blocks[at]?.length ?? 0);
    if (text.length - start > suffix || !beginsLine(text, start)) break;
    to = start;
    lasts++;
  }
  const end = earlier.blocks.length - lasts;
  return { first: earlier.blocks.slice(0, firsts), last: earlier.blocks.slice(end), from, to };
}

function readRecord(written: string, table: TableName): User | Grant {
  const { [table]: array } = parseToml(written, "").values;
  const [record] = Array.isArray(array) ? array : [];
  return table === "users" ? readUser(record, 0) : readGrant(record, 0);
}

function* readBlocks(text: string, blocks: readonly Block[]): Steps<ReadBlock[]> {
  const read: ReadBlock[] = [];
  yield* visitEach(blocks, ({ table, start, end }) => {
    read.push({ length: end - start, record: readRecord(text.slice(start, end), table) });
  });
  return read;
}

function isUser(record: User | Grant): record is User {
  return "tokensValidAfter" in record;
}

function* sortRecords(blocks: readonly ReadBlock[]): Steps<AccessRecords> {
  const users: User[] = [];
  const grants: Grant[] = [];
  yield* visitEach(blocks, ({ record }) => {
    if (isUser(record)) users.push(record);
    else grants.push(record);
  });
  return { users, grants };
}

function* readParts(text: string, earlier: PlainFile | undefined): Steps<PlainFile | undefined> {
  const { first, last, from, to } = yield* findReusable(text, earlier);
  yield;
  const isPlain = first.length > 0 || isBlankUntil(text, from);
  if (!isPlain || hasLongStrings(text.slice(from, to))) return undefined;
  // Comments too have characters that may not stand in them.
  if (first.length === 0) parseToml(text.slice(0, from), "");
  const middle = yield* blocksBetween(text, from, to);
  if (middle === undefined) return undefined;
  const blocks = [...first, ...(yield* readBlocks(text, middle)), ...last];
  const preamble = first.length > 0 ? (earlier?.preamble ?? 0) : from;
  return { text, preamble, blocks, records: yield* sortRecords(blocks) };
}

/**
 * Reads a plainly written file; what it has in common with an `earlier` one is not read again.
 * Undefined if the file is not plain or not right: then a parser for any file has the word.
 */
export function* readPlain(
  text: string,
  earlier: PlainFile | undefined,
): Steps<PlainFile | undefined> {
  try {
    return yield* readParts(text, earlier);
  } catch (error) {
    if (error instanceof RecordError || error instanceof TomlSyntaxError) return undefined;
    throw error;
  }
}
