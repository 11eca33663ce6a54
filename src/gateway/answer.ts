import type { ServerResponse } from "node:http";
import { runCooperatively, type Steps } from "../cooperative-scheduling.ts";
import type { Exchange } from "./exchange.ts";
import { endBeforeBody, leavesBodyUnread } from "./unread-body.ts";

/** The headers that every answer carries: names and values in turn. */
export function commonHeaders(exchange: Exchange): string[] {
  const { decision, filters } = exchange.verdict;
  const headers = ["X-Request-Id", exchange.requestId];
  if (decision !== undefined) headers.push("X-Gatehouse-Decision", decision);
  if (filters.length > 0) headers.push("X-Gatehouse-Narrowed", "rows");
  headers.push(...exchange.extraHeaders);
  return headers;
}

/**
 * Writes the head of an answer in JSON; `endJson` is to follow.
 *
 * @param headers of its own: names and values in turn
 */
function beginJson(exchange: Exchange, status: number, headers: readonly string[] = []): void {
  const { response } = exchange;
  if (leavesBodyUnread(exchange)) response.shouldKeepAlive = false;
  response.writeHead(status, [
    ...["Content-Type", "application/json; charset=utf-8"],
    ...["Cache-Control", "no-store"],
    ...["X-Content-Type-Options", "nosniff"],
    ...commonHeaders(exchange),
    ...headers,
  ]);
}

/** Ends such an answer, perhaps with the last of its body. */
function endJson(exchange: Exchange, last: string | Buffer | undefined): void {
  const { response } = exchange;
  if (leavesBodyUnread(exchange)) endBeforeBody(exchange, last);
  else response.end(last);
}

/** Sends a text that is JSON. */
function sendText(
  exchange: Exchange,
  status: number,
  text: string,
  headers: readonly string[] = [],
): void {
  const bytes = Buffer.from(text);
  beginJson(exchange, status, ["Content-Length", String(bytes.length), ...headers]);
  endJson(exchange, exchange.request.method === "HEAD" ? undefined : bytes);
}

/** Sends `body` as JSON. */
export function sendJson(
  exchange: Exchange,
  status: number,
  body: unknown,
  headers: readonly string[] = [],
): void {
  sendText(exchange, status, JSON.stringify(body), headers);
}

/** Sends a success in the documented shape. */
export function sendSuccess(exchange: Exchange, status: number, fields: object): void {
  sendJson(exchange, status, { status: "success", ...fields });
}

/** Characters that are written at a time. */
const PIECE_LENGTH = 1 << 16;

/** Some items as JSON, and whether they are the last ones. */
interface Piece {
  readonly text: string;
  readonly isLast: boolean;
}

function* pieceSteps(items: Iterator<object | undefined>, isFirst: boolean): Steps<Piece> {
  let text = "";
  while (text.length < PIECE_LENGTH) {
    const { value, done } = items.next();
    if (done === true) return { text, isLast: true };
    if (value !== undefined) {
      text += isFirst && text === "" ? JSON.stringify(value) : `,${JSON.stringify(value)}`;
    }
    yield;
  }
  return { text, isLast: false };
}

function field([name, value]: [string, unknown]): string {
  return `${JSON.stringify(name)}:${JSON.stringify(value)}`;
}

/** Resolves when more can be written, or the client is gone. */
async function whenWritable(response: ServerResponse): Promise<void> {
  const { promise, resolve } = Promise.withResolvers<void>();
  response.once("drain", resolve).once("close", resolve);
  await promise;
  response.off("drain", resolve).off("close", resolve);
}

/**
 * Sends a success with a list, which may be long: made in slices between which others are served,
 * and no faster than the client takes it.
 *
 * @param items undefined stands for nothing, where the next one takes some looking for
 * @param rest further fields
 */
export async function sendList(
  exchange: Exchange,
  name: string,
  items: Iterable<object | undefined>,
  rest: object = {},
): Promise<void> {
  const { request, response } = exchange;
  const iterator = items[Symbol.iterator]();
  const head = `{"status":"success","${name}":[`;
  const tail = `]${["", ...Object.entries(rest).map(field)].join(",")}}`;
  let piece = await runCooperatively(pieceSteps(iterator, true));
  if (piece.isLast) {
    sendText(exchange, 200, `${head}${piece.text}${tail}`);
    return;
  }
  beginJson(exchange, 200);
  if (request.method === "HEAD") {
    endJson(exchange, undefined);
    return;
  }
  response.write(head);
  while (!response.destroyed) {
    if (!response.write(piece.text)) await whenWritable(response);
    if (piece.isLast) break;
    piece = await runCooperatively(pieceSteps(iterator, false));
  }
  endJson(exchange, tail);
}
