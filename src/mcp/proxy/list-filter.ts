import { Transform, type TransformCallback } from "node:stream";
import { inSlices, type Steps } from "../../slices.ts";
import {
  beginsWith,
  JsonRefused,
  readElements,
  readMembers,
  readText,
  writeMembers,
} from "../strict-json.ts";

/** Bytes of one message that are held while it is looked at. */
const LARGEST_MESSAGE_BYTES = 16 * 1024 * 1024;

/** True if the tool of this name may be shown. */
export type ShowTool = (name: string) => boolean;

function* filterArray(tools: Buffer, show: ShowTool): Steps<Buffer> {
  const kept: Buffer[] = [];
  for (const tool of yield* readElements(tools)) {
    const members = beginsWith(tool, "{") ? yield* readMembers(tool) : undefined;
    const name = readText(members?.get("name"));
    if (name !== undefined && show(name)) kept.push(tool);
  }
  return Buffer.from(`[${kept.map((tool) => tool.toString("utf8")).join(",")}]`);
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
 * Takes the tools that may not be shown out of a JSON-RPC message, if it is a list of tools. Caches
 * are told to keep it for nobody else, and to ask again each time (MCP 2026-07-28, Caching).
 *
 * @returns the message's bytes; the same ones if there is nothing to filter
 * @throws JsonRefused for a message that two parsers could read differently
 */
function* filterMessage(message: Buffer, show: ShowTool): Steps<Buffer> {
  const top = yield* readMembers(message);
  const content = top.get("result");
  if (content === undefined || !beginsWith(content, "{")) return message;
  const result = yield* readMembers(content);
  const tools = result.get("tools");
  if (tools === undefined) return message;
  if (!beginsWith(tools, "[")) throw new JsonRefused("tools is not an array", false);
  result.set("tools", yield* filterArray(tools, show));
  forbidKeeping(result);
  return writeMembers(top.set("result", writeMembers(result)));
}

/** Filters a body that is one JSON message. It ends in an error rather than let a bad one pass. */
export class MessageFilter extends Transform {
  readonly #show: ShowTool;
  readonly #chunks: Buffer[] = [];
  #length = 0;

  constructor(show: ShowTool) {
    super();
    this.#show = show;
  }

  override _transform(chunk: Buffer, _encoding: BufferEncoding, done: TransformCallback): void {
    this.#length += chunk.length;
    this.#chunks.push(chunk);
    done(this.#length > LARGEST_MESSAGE_BYTES ? new JsonRefused("too long", false) : null);
  }

  override _flush(done: TransformCallback): void {
    const body = Buffer.concat(this.#chunks);
    if (body.length === 0) done();
    else inSlices(filterMessage(body, this.#show)).then((filtered) => done(null, filtered), done);
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
function* filterEvent(event: string, show: ShowTool): Steps<string> {
  const lines = event.split(endOfLine);
  const data = lines.flatMap((line) => {
    const match = dataLine.exec(line);
    return match === null ? [] : [match.groups?.text ?? ""];
  });
  const text = data.join("\n");
  if (text.trim() === "") return event;
  const message = Buffer.from(text, "latin1");
  const filtered = yield* filterMessage(message, show);
  if (filtered === message) return event;
  const others = lines.filter((line) => line !== "" && !dataLine.test(line));
  // Written again as JSON of one line each, since no value but a string keeps a line break.
  const written = filtered.toString("latin1").split(endOfLine);
  return [...others, ...written.map((line) => `data: ${line}`), "", ""].join("\n");
}

/** Filters a stream of events, each as soon as it is whole. */
export class EventFilter extends Transform {
  readonly #show: ShowTool;
  #rest = "";
  #isAtStart = true;

  constructor(show: ShowTool) {
    super();
    this.#show = show;
  }

  override _transform(chunk: Buffer, _encoding: BufferEncoding, done: TransformCallback): void {
    const searched = this.#rest.length;
    this.#rest += chunk.toString("latin1");
    inSlices(this.#passWholeEvents(searched)).then(
      () =>
        done(this.#rest.length > LARGEST_MESSAGE_BYTES ? new JsonRefused("too long", false) : null),
      done,
    );
  }

  /** What is left is no whole event, and clients would drop it. */
  override _flush(done: TransformCallback): void {
    done();
  }

  *#passWholeEvents(searched: number): Steps<void> {
    endOfEvent.lastIndex = Math.max(0, searched - END_LENGTH);
    let start = 0;
    for (let end = endOfEvent.exec(this.#rest); end !== null; end = endOfEvent.exec(this.#rest)) {
      const next = end.index + end[0].length;
      const event = this.#rest.slice(start, next);
      const text = this.#isAtStart ? event.replace(byteOrderMark, "") : event;
      this.#isAtStart = false;
      this.push(yield* filterEvent(text, this.#show), "latin1");
      start = next;
    }
    this.#rest = this.#rest.slice(start);
  }
}
