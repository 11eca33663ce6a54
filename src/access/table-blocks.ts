import type { Steps } from "../cooperative-scheduling.ts";
import { outline } from "../toml/outline.ts";
import { isTableName, type TableName } from "./record-tables.ts";

/** Where a `[[users]]`, `[[acl]]` or `[[boundaries]]` table stands: from its header to the next one. */
export interface Block {
  readonly table: TableName;
  readonly start: number;
  readonly end: number;
}

/** Blocks read between two chances to interrupt. */
const BLOCKS_PER_STEP = 512;

const header = /\[\[(users|acl|boundaries)\]\][ \t]*(?:#[^\n]*)?\r?(?:\n|$)/y;
const blankLine = /[ \t]*(?:#[^\n]*)?\r?(?:\n|$)/y;

/** True if only white space stands between the start of the line and `at`. */
function beginsLine(text: string, at: number): boolean {
  let before = at - 1;
  while (text[before] === " " || text[before] === "\t") before--;
  return before < 0 || text[before] === "\n";
}

/** True if nothing but blank lines and comments stands before `end`. */
export function isBlankUntil(text: string, end: number): boolean {
  let at = 0;
  while (at < end) {
    blankLine.lastIndex = at;
    const match = blankLine.exec(text);
    if (match === null || match[0].length === 0) return false;
    at = match.index + match[0].length;
  }
  return true;
}

/** The next `[` at the beginning of a line, at or after `from`; the text's length if none. */
export function nextBracket(text: string, from: number): number {
  let at = text.indexOf("[", from);
  while (at !== -1 && !beginsLine(text, at)) at = text.indexOf("[", at + 1);
  return at === -1 ? text.length : at;
}

/**
 * Splits the text from a bracket at the beginning of a line on, far quicker than a parser
 * could. Undefined if it holds anything in which a line that looks like a header might be none:
 * then it takes a parser. A table that spans a bracket of its own is cut in two, and neither half
 * parses.
 */
export function* blocksFrom(text: string, from: number): Steps<Block[] | undefined> {
  const blocks: Block[] = [];
  let start = from;
  while (start < text.length) {
    header.lastIndex = start;
    const table = header.exec(text)?.[1];
    if (!isTableName(table)) return undefined;
    const end = nextBracket(text, header.lastIndex);
    blocks.push({ table, start, end });
    start = end;
    if (blocks.length % BLOCKS_PER_STEP === 0) yield;
  }
  return blocks;
}

/** True if the text has strings of several lines, in which a line may look like anything. */
export function hasLongStrings(text: string): boolean {
  return text.includes('"""') || text.includes("'''");
}

/** The blocks of a plainly written file; undefined if it takes a parser. */
export function* plainBlocks(text: string): Steps<Block[] | undefined> {
  const start = nextBracket(text, 0);
  if (hasLongStrings(text) || !isBlankUntil(text, start)) return undefined;
  return yield* blocksFrom(text, start);
}

/**
 * The blocks of any valid file, by its outline. Undefined if there is a key before the first
 * header, which can only be an array of inline tables.
 */
export function outlinedBlocks(text: string): Block[] | undefined {
  const statements = outline(text);
  if (statements[0]?.kind === "key") return undefined;
  // A `[users.attributes]` belongs to the record before it.
  const headers = statements.filter(({ kind, path }) => kind !== "key" && path.length === 1);
  return headers.flatMap(({ path: [table], start }, at) => {
    const end = headers[at + 1]?.start ?? text.length;
    return isTableName(table) ? [{ table, start, end }] : [];
  });
}
