import type { GoOn } from "./cursor.ts";
import type { Rows } from "./rows.ts";
import { ToolFailure } from "./tool-failure.ts";

/** What a tool has done, written as it goes out. */
export interface ToolResult {
  /** For clients that show a model the text alone: JSON, as much of it as is short. */
  readonly text: string;
  /** The structured content: one JSON object. */
  readonly structured: Buffer;
}

/** A result that is no page of a list. @param replace as `JSON.stringify` takes it */
export function resultOf(
  content: Readonly<Record<string, unknown>>,
  replace?: (key: string, value: unknown) => unknown,
): ToolResult {
  const text = JSON.stringify(content, replace);
  return { text, structured: Buffer.from(text) };
}

/** How much of a list a result holds. */
export interface PageLimits {
  /** Elements. */
  readonly most: number;
  /** Bytes of the whole result. */
  readonly bytes: number;
  /** How to go on; absent if there is no going on. */
  readonly goOn?: GoOn;
  /** What the result says besides. */
  readonly more?: object;
}

/** Bytes of the text at most, of which a model reads every one. */
const LONGEST_TEXT = 16 * 1024;
/** Bytes of the text of a result that has so many at most. */
export function textBytesOf(bytes: number): number {
  return Math.min(LONGEST_TEXT, Math.floor(bytes / 8));
}

/** Bytes for all of a result that is neither its text nor its elements. */
const ENVELOPE = 1024;

const comma = Buffer.from(",");

/** How many of the elements, each with a comma, fit. */
function countFitting(elements: readonly Buffer[], bytes: number): number {
  let left = bytes;
  const past = elements.findIndex((element) => {
    left -= element.length + 1;
    return left < 0;
  });
  return past < 0 ? elements.length : past;
}

/** An object that has the elements under `key`, and says whether there are more and how to go on. */
async function pageOf(
  key: string,
  elements: readonly Buffer[],
  isTruncated: boolean,
  { goOn, more }: PageLimits,
): Promise<Buffer> {
  const next = isTruncated ? await goOn?.(elements) : {};
  const rest = JSON.stringify({ truncated: isTruncated, ...next, ...more }).slice(1);
  const separated = elements.flatMap((element, at) => (at === 0 ? element : [comma, element]));
  const start = Buffer.from(`{${JSON.stringify(key)}:[`);
  return Buffer.concat([start, ...separated, Buffer.from(`],${rest}`)]);
}

/** Where not even one element fits into the text. */
function textWithout(key: string): string {
  return `The ${key} are in the structured content; to have them as text, ask for fewer columns.`;
}

/**
 * A list as a result: as many elements as fit, and how to go on. The text has the first of them
 * too, in the same form, so that a model that sees nothing else goes on from there.
 *
 * @throws ToolFailure if not even one fits
 */
export async function listResult(
  key: string,
  { rows, isCut }: Rows,
  limits: PageLimits,
): Promise<ToolResult> {
  const { most, bytes } = limits;
  const textBytes = textBytesOf(bytes);
  const listed = rows.slice(0, most);
  // In the text, every quote takes an escape.
  const shown = listed.slice(0, countFitting(listed, bytes - 2 * textBytes - ENVELOPE));
  if (shown.length === 0 && (listed.length > 0 || (isCut && most > 0))) {
    const mend = "ask for fewer columns";
    throw new ToolFailure(
      `Failed: one of the ${key} alone is larger than a result may be, which is ${bytes} bytes: ${mend} (result_too_large)`,
    );
  }
  const isTruncated = isCut || shown.length < rows.length;
  const read = shown.slice(0, countFitting(shown, textBytes));
  const text =
    read.length === 0 && shown.length > 0
      ? textWithout(key)
      : (await pageOf(key, read, isTruncated || read.length < shown.length, limits)).toString();
  return { text, structured: await pageOf(key, shown, isTruncated, limits) };
}
