import { runAtOnce, runCooperatively } from "../../cooperative-scheduling.ts";
import { JsonFault } from "../../json/fault.ts";
import { readMembers, readText } from "../../json/members.ts";
import { isRounded, type Rows, rowsIn } from "./rows.ts";
import { ToolFailure } from "./tool-failure.ts";

/** What a tool has done, written as it goes out. */
export interface ToolResult {
  /** For clients that show a model the text alone: JSON, as much of it as is short. */
  readonly text: string;
  /** The structured content: one JSON object. */
  readonly structured: Buffer;
}

/** A result that holds no list. */
export function resultOf(content: Readonly<Record<string, unknown>>): ToolResult {
  const text = JSON.stringify(content);
  return { text, structured: Buffer.from(text) };
}

/** How much of a list a result holds. */
export interface PageLimits {
  /** Elements. */
  readonly most: number;
  /** Bytes of the whole result. */
  readonly bytes: number;
  /** How many elements were skipped before the first one; undefined if there is no going on. */
  readonly offset: number | undefined;
}

/** Bytes of the text at most, of which a model reads every one. */
const LONGEST_TEXT = 16 * 1024;
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
function pageOf(
  key: string,
  elements: readonly Buffer[],
  isTruncated: boolean,
  offset: number | undefined,
): Buffer {
  const next = isTruncated && offset !== undefined ? { next_offset: offset + elements.length } : {};
  const rest = JSON.stringify({ truncated: isTruncated, ...next }).slice(1);
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
export function listResult(key: string, { rows, isCut }: Rows, limits: PageLimits): ToolResult {
  const { most, bytes, offset } = limits;
  const textBytes = Math.min(LONGEST_TEXT, Math.floor(bytes / 8));
  const listed = rows.slice(0, most);
  // In the text, every quote takes an escape.
  const shown = listed.slice(0, countFitting(listed, bytes - 2 * textBytes - ENVELOPE));
  if (shown.length === 0 && (isCut || rows.length > 0)) {
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
      : pageOf(key, read, isTruncated || read.length < shown.length, offset).toString();
  return { text, structured: pageOf(key, shown, isTruncated, offset) };
}

/** What the database answers to a query. */
export interface QueryAnswer {
  readonly status: number;
  readonly body: Buffer;
  /** True if the answer goes on behind the body. */
  readonly isCut: boolean;
}

/** Bytes of an answer that says what was done, or why not. */
const LONGEST_MESSAGE = 16 * 1024;

interface Message {
  readonly message?: string | undefined;
  readonly code?: string | undefined;
}

function messageIn(body: Buffer): Message {
  if (body.length > LONGEST_MESSAGE) return {};
  try {
    const members = runAtOnce(readMembers(body));
    return { message: readText(members.get("message")), code: readText(members.get("code")) };
  } catch (error) {
    if (error instanceof JsonFault) return {};
    throw error;
  }
}

function requireSuccess({ status, body }: QueryAnswer): void {
  if (status >= 200 && status < 300) return;
  const { message = "The database gave no reason", code = `status ${status}` } = messageIn(body);
  throw new ToolFailure(`${status === 403 ? "Denied" : "Failed"}: ${message} (${code})`);
}

/** The rows of an answer, as far as they fit. @throws ToolFailure */
export async function rowsOf(answer: QueryAnswer, limits: PageLimits): Promise<ToolResult> {
  requireSuccess(answer);
  const rows = await runCooperatively(rowsIn(answer.body, answer.isCut));
  if (rows === undefined) {
    throw new ToolFailure("Failed: the database answered without rows that can be passed on");
  }
  return listResult("rows", rows, limits);
}

/** Rows of an answer to a change by the names that a result has for them. */
const rowNames = { data: "rows", before: "before", after: "after" } as const;

/** A number that JSON readers may round becomes a string of its digits. */
function keepDigits(_key: string, value: unknown, context?: { readonly source?: string }): unknown {
  const { source = "" } = context ?? {};
  return typeof value === "number" && isRounded(source) ? source : value;
}

/** What an answer says was done, and the rows that it shows. @throws ToolFailure */
export function changeOf(answer: QueryAnswer, bytes: number): ToolResult {
  requireSuccess(answer);
  const { body, isCut } = answer;
  if (isCut)
    return resultOf({ message: "Done; the rows are too large to be shown", truncated: true });
  const found: Readonly<Record<string, unknown>> = parsedObject(body);
  const { message, affected } = found;
  const rows = Object.entries(rowNames).flatMap(([key, name]) =>
    Array.isArray(found[key]) ? [[name, found[key]] as const] : [],
  );
  const said = {
    ...(typeof message === "string" ? { message } : rows.length === 0 ? { message: "Done" } : {}),
    ...(typeof affected === "number" ? { affected } : {}),
  };
  const whole = resultOf({ ...said, ...Object.fromEntries(rows) });
  if (2 * whole.text.length <= bytes) return whole;
  return { ...whole, text: resultOf({ ...said, truncated: true }).text };
}

function parsedObject(body: Buffer): Readonly<Record<string, unknown>> {
  try {
    const parsed: unknown = JSON.parse(body.toString("utf8"), keepDigits);
    return typeof parsed === "object" && parsed !== null ? { ...parsed } : {};
  } catch {
    return {};
  }
}
