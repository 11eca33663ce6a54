import { runCooperatively, type Steps } from "../../cooperative-scheduling.ts";
import { ByteText } from "../../json/bytes.ts";
import { type ReadMember, skipArray, skipObject, skipUniqueKeys } from "../../json/document.ts";
import { visitMembers, visitObject, writeMembers } from "../../json/members.ts";
import type { JsonReader } from "../../json/reader.ts";
import { andThen, type Rest } from "../../json/rest.ts";
import type { BodyFilter } from "../../upstream/pooled-proxy.ts";

/** Bytes of one message that are held while it is looked at. */
const LARGEST_MESSAGE_BYTES = 16 * 1024 * 1024;
const nothing = Buffer.alloc(0);

/** The lists that are filtered: the member of a result, and what its elements are known by. */
const lists = [
  { key: "tools", member: ByteText.from("name") },
  { key: "tasks", member: ByteText.from("taskId") },
] as const;
type ListKey = (typeof lists)[number]["key"];

/** True if the element of a list that is known by this name may be shown. */
export type ShowElement = Readonly<Record<ListKey, (name: string) => boolean | Promise<boolean>>>;

/** An element of a list: where it stands in the message, and what it is known by. */
interface Element {
  readonly start: number;
  readonly end: number;
  readonly name: string | undefined;
}

/** A message, its result if that is an object, and the lists in there. */
interface Listed {
  readonly top: Map<string, Buffer>;
  readonly result: Map<string, Buffer>;
  readonly held: Map<ListKey, readonly Element[]>;
}

/** Reads the elements of a list; what is no object with that member has no name. */
function readList(reader: JsonReader, member: ByteText, elements: Element[]): Rest {
  let name: string | undefined;
  const readMember: ReadMember = (_, key) => {
    if (!key.equals(member) || reader.kind() !== "a string") return skipUniqueKeys(reader);
    name = reader.readString().toString();
    return undefined;
  };
  return skipArray(reader, () => {
    const start = reader.position;
    name = undefined;
    const isObject = reader.kind() === "an object";
    const rest = isObject ? skipObject(reader, readMember) : skipUniqueKeys(reader);
    const note = () => void elements.push({ start, end: reader.position, name });
    if (rest !== undefined) return andThen(rest, note);
    note();
    return undefined;
  });
}

/** @throws JsonFault for a message that two parsers could read differently */
function* readListed(message: Buffer): Steps<Listed> {
  const [top, result] = [new Map<string, Buffer>(), new Map<string, Buffer>()];
  const held = new Map<ListKey, Element[]>();
  const readOfResult: ReadMember = (reader, key) => {
    const list = lists.find((one) => one.key === key.toString());
    if (list === undefined) return skipUniqueKeys(reader);
    const elements: Element[] = [];
    held.set(list.key, elements);
    return readList(reader, list.member, elements);
  };
  const read: ReadMember = (reader, key) => {
    const isResult = key.toString() === "result" && reader.kind() === "an object";
    if (!isResult) return skipUniqueKeys(reader);
    return visitObject(reader, (name, value) => result.set(name, value), readOfResult);
  };
  yield* visitMembers(message, (name, value) => top.set(name, value), read);
  return { top, result, held };
}

const [openBracket = 0, comma = 0, closeBracket = 0] = Buffer.from("[,]");

/** A list of those elements alone that may be shown. */
async function filterList(
  message: Buffer,
  elements: readonly Element[],
  show: ShowElement[ListKey],
): Promise<Buffer> {
  const [first, last] = [elements[0]?.start ?? 0, elements.at(-1)?.end ?? 0];
  const list = Buffer.allocUnsafe(last - first + 2);
  let length = list.writeUInt8(openBracket);
  for (const { start, end, name } of elements) {
    const shown = name !== undefined && show(name);
    // Few are answered by another process.
    if (shown === false || (shown !== true && !(await shown))) continue;
    if (length > 1) length = list.writeUInt8(comma, length);
    length += message.copy(list, length, start, end);
  }
  return list.subarray(0, list.writeUInt8(closeBracket, length));
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
  const { top, result, held } = await runCooperatively(readListed(message));
  if (held.size === 0) return message;
  for (const [key, elements] of held) {
    result.set(key, await filterList(message, elements, show[key]));
  }
  forbidKeeping(result);
  return writeMembers(top.set("result", writeMembers(result)));
}

/** Filters a body that is one JSON message. It ends in an error rather than let a bad one pass. */
export class MessageFilter implements BodyFilter {
  readonly #show: ShowElement;
  #bytes: Buffer;
  #length = 0;

  /** @param expected bytes of the body, if that is known */
  constructor(show: ShowElement, expected = 0) {
    this.#show = show;
    this.#bytes = Buffer.allocUnsafe(Math.min(expected, LARGEST_MESSAGE_BYTES));
  }

  pass(piece: Buffer): Buffer {
    const length = this.#length + piece.length;
    if (length > LARGEST_MESSAGE_BYTES) throw new Error("too long");
    if (length > this.#bytes.length) {
      const larger = Buffer.allocUnsafe(Math.max(length, 2 * this.#bytes.length));
      this.#bytes.copy(larger, 0, 0, this.#length);
      this.#bytes = larger;
    }
    piece.copy(this.#bytes, this.#length);
    this.#length = length;
    return nothing;
  }

  end(): Buffer | Promise<Buffer> {
    return this.#length === 0
      ? nothing
      : filterMessage(this.#bytes.subarray(0, this.#length), this.#show);
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
