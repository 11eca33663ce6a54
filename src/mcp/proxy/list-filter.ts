import { runCooperatively } from "../../cooperative-scheduling.ts";
import { JsonFault } from "../../json/fault.ts";
import {
  beginsWith,
  readElements,
  readJudgedMembers,
  readMembers,
  readText,
  writeMembers,
} from "../../json/members.ts";
import type { BodyFilter } from "../../upstream/pooled-proxy.ts";

/** Bytes of one message that are held while it is looked at. */
const LARGEST_MESSAGE_BYTES = 16 * 1024 * 1024;
const nothing = Buffer.alloc(0);

/** The lists that are filtered: the member of a result, and what its elements are known by. */
const lists = [
  { key: "tools", member: "name" },
  { key: "tasks", member: "taskId" },
] as const;

/** True if the element of a list that is known by this name may be shown. */
export type ShowElement = Readonly<
  Record<(typeof lists)[number]["key"], (name: string) => boolean | Promise<boolean>>
>;

const comma = Buffer.from(",");

async function filterList(
  list: Buffer,
  { key, member }: (typeof lists)[number],
  show: ShowElement,
): Promise<Buffer> {
  if (!beginsWith(list, "[")) throw new JsonFault("wrong_type", `${key} is not an array`, 0);
  const pieces: Buffer[] = [];
  for (const { bytes, value } of await runCooperatively(readElements(list, member))) {
    const name = readText(value);
    const shown = name !== undefined && show[key](name);
    // Few are answered by another process.
    if (shown === true || (shown !== false && (await shown))) pieces.push(comma, bytes);
  }
  return Buffer.concat([Buffer.from("["), ...pieces.slice(1), Buffer.from("]")]);
}

/** What a result of 2026-07-28 has, and no earlier one: it must say how long it may be kept. */
const cacheable = ["resultType", "ttlMs", "cacheScope"];

/** The list is one caller's own, and as good as a grant that may be lost at any time. */
function forbidKeeping(result: Map<string, Buffer>): void {
  if (!cacheable.some((key) => result.has(key))) return;
  result.set("ttlMs", Buffer.from("0"));
  result.set("cacheScope", Buffer.from('"private"'));
}

/**
 * Takes what may not be shown out of a JSON-RPC message, if it is a list of tools or tasks. Caches
 * are told to keep it for nobody else, and to ask again each time (MCP 2026-07-28, Caching).
 *
 * @returns the message's bytes; the same ones if there is nothing to filter
 * @throws JsonFault for a message that two parsers could read differently
 */
async function filterMessage(message: Buffer, show: ShowElement): Promise<Buffer> {
  const top = await runCooperatively(readMembers(message));
  const content = top.get("result");
  if (content === undefined || !beginsWith(content, "{")) return message;
  const result = await runCooperatively(readJudgedMembers(content));
  const held = lists.filter(({ key }) => result.has(key));
  if (held.length === 0) return message;
  for (const list of held) {
    const elements = result.get(list.key) ?? Buffer.alloc(0);
    result.set(list.key, await filterList(elements, list, show));
  }
  forbidKeeping(result);
  return writeMembers(top.set("result", writeMembers(result)));
}

/** Filters a body that is one JSON message. It ends in an error rather than let a bad one pass. */
export class MessageFilter implements BodyFilter {
  readonly #show: ShowElement;
  readonly #pieces: Buffer[] = [];
  #length = 0;

  constructor(show: ShowElement) {
    this.#show = show;
  }

  pass(piece: Buffer): Buffer {
    this.#length += piece.length;
    if (this.#length > LARGEST_MESSAGE_BYTES) throw new Error("too long");
    this.#pieces.push(Buffer.from(piece));
    return nothing;
  }

  end(): Buffer | Promise<Buffer> {
    return this.#length === 0 ? nothing : filterMessage(Buffer.concat(this.#pieces), this.#show);
  }
}

/** An empty line: the end of an event (WHATWG HTML, server-sent events). */
const endOfEvent = /(?:\r\n|\r(?!\n)|\n){2}/g;
/** The length of the longest one. */
const END_LENGTH = 4;
const endOfLine = /\r\n|\r|\n/;
/** A line of data; what follows the colon, but one space, counts. */
const dataLine = /^data(?:: ?(?<text>.*))?$/s;
/** What a stream may begin with, a character for each byte; anywhere else it is text. */
const byteOrderMark = /^\xef\xbb\xbf/;

/** Filters one event, given as a character for each byte. */
async function filterEvent(event: string, show: ShowElement): Promise<string> {
  const lines = event.split(endOfLine);
  const data = lines.flatMap((line) => {
    const match = dataLine.exec(line);
    return match === null ? [] : [match.groups?.text ?? ""];
  });
  const text = data.join("\n");
  if (text.trim() === "") return event;
  const message = Buffer.from(text, "latin1");
  const filtered = await filterMessage(message, show);
  if (filtered === message) return event;
  const others = lines.filter((line) => line !== "" && !dataLine.test(line));
  // Written again as JSON of one line each, since no value but a string keeps a line break.
  const written = filtered.toString("latin1").split(endOfLine);
  return [...others, ...written.map((line) => `data: ${line}`), "", ""].join("\n");
}

/** Filters a stream of events, each as soon as it is whole. */
export class EventFilter implements BodyFilter {
  readonly #show: ShowElement;
  /** This stream's own place in its text: others are looked at in between. */
  readonly #ends = new RegExp(endOfEvent);
  #rest = "";
  #isAtStart = true;

  constructor(show: ShowElement) {
    this.#show = show;
  }

  async pass(piece: Buffer): Promise<Buffer> {
    const searched = this.#rest.length;
    this.#rest += piece.toString("latin1");
    const events = await this.#takeWholeEvents(searched);
    if (this.#rest.length > LARGEST_MESSAGE_BYTES) throw new Error("too long");
    return Buffer.from(events, "latin1");
  }

  /** What is left is no whole event, and clients would drop it. */
  end(): Buffer {
    return nothing;
  }

  async #takeWholeEvents(searched: number): Promise<string> {
    const ends = this.#ends;
    ends.lastIndex = Math.max(0, searched - END_LENGTH);
    let start = 0;
    let passed = "";
    for (let end = ends.exec(this.#rest); end !== null; end = ends.exec(this.#rest)) {
      const next = end.index + end[0].length;
      const event = this.#rest.slice(start, next);
      const text = this.#isAtStart ? event.replace(byteOrderMark, "") : event;
      this.#isAtStart = false;
      passed += await filterEvent(text, this.#show);
      start = next;
    }
    this.#rest = this.#rest.slice(start);
    return passed;
  }
}
