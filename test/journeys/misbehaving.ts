import type { Socket } from "node:net";
import { wireAnswer } from "../kit/raw-upstream.ts";

/** A route on which anything is passed on. */
export const open = '[[routes]]\npath = "/public"\nmethods = ["GET", "POST"]\naccess = "public"\n';

/** A query that carries an id, which its answer must repeat. */
export function asking(id: string, operation: "Select" | "Insert"): string {
  const value = { database: "main" };
  if (operation === "Insert") {
    return JSON.stringify({ Insert: { ...value, table: "t", values: [{ id }] } });
  }
  const where = { column: "id", cmp: "=", value: id };
  return JSON.stringify({ Select: { ...value, from: "t", columns: ["*"], where } });
}

/** The id in a query or an answer. */
export function idIn(text: string): string {
  return /"(id-\d+)"/.exec(text)?.[1] ?? "";
}

/** Answers wrongly, given a right answer with the request's id. */
export type Misbehaviour = (socket: Socket, right: string) => void;

/** Writes in the upstream's place, then ends the connection. */
export function ending(text: string): Misbehaviour {
  return (socket) => socket.end(text, "latin1");
}

/** How a right answer begins. */
const head = "HTTP/1.1 200 OK\r\n";

/** What is no answer. */
export const broken: Record<string, Misbehaviour> = {
  "half a status line": ending("HTTP/1."),
  "half a head": ending(`${head}Content-Ty`),
  "half a head, then a reset": (socket) => {
    socket.write(`${head}Content-Ty`, () => socket.resetAndDestroy());
  },
  "another protocol": ending("SSH-2.0-OpenSSH_9.7\r\n"),
  "HTTP/2 without being asked": ending("\x00\x00\x12\x04\x00\x00\x00\x00\x00"),
  "a status of two digits": ending("HTTP/1.1 99 Odd\r\nContent-Length: 0\r\n\r\n"),
  "a status of four digits": ending("HTTP/1.1 2000 OK\r\nContent-Length: 0\r\n\r\n"),
  "two lengths": ending(`${head}Content-Length: 1\r\nContent-Length: 2\r\n\r\nab`),
  "a negative length": ending(`${head}Content-Length: -1\r\n\r\n`),
  "a length and chunks": ending(`${head}Content-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n`),
  "a name with a space": ending(`${head}Bad Name: 1\r\nContent-Length: 0\r\n\r\n`),
  "a header of 100 kB": ending(`${head}X-Long: ${"x".repeat(100_000)}\r\n\r\n`),
  "a hundred thousand headers": ending(`${head}${"X-A: 1\r\n".repeat(100_000)}\r\n`),
  "a change of protocols": ending(
    "HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: x\r\n\r\n",
  ),
  "a go-ahead that nobody asked for": ending("HTTP/1.1 100 Continue\r\n\r\n"),
  "interim answers without end": (socket) => {
    socket.write("HTTP/1.1 102 Processing\r\n\r\n".repeat(5000));
  },
};

/** Answers that break off. */
export const cut: Record<string, Misbehaviour> = {
  "fewer bytes than its length": ending(`${head}Content-Length: 100\r\n\r\nhalf`),
  "a chunk whose size is no number": (socket) => {
    socket.write(`${head}Transfer-Encoding: chunked\r\n\r\n4\r\nhalf\r\nzz\r\n`);
  },
  "a chunk longer than its size": (socket) => {
    socket.write(`${head}Transfer-Encoding: chunked\r\n\r\n4\r\nhalfmore\r\n0\r\n\r\n`);
  },
  "chunks without an end": ending(`${head}Transfer-Encoding: chunked\r\n\r\n4\r\nhalf\r\n`),
  "a reset in the body": (socket) => {
    socket.write(`${head}Content-Length: 100\r\n\r\nhalf`, () => socket.resetAndDestroy());
  },
};

/** Answers that break off before a byte of their content. */
export const cutEarly: Record<string, Misbehaviour> = {
  "no chunk": ending(`${head}Transfer-Encoding: chunked\r\n\r\n`),
  "half a chunk's size": ending(`${head}Transfer-Encoding: chunked\r\n\r\n4`),
  "a first chunk whose size is no number": (socket) => {
    socket.write(`${head}Transfer-Encoding: chunked\r\n\r\nzz\r\n`);
  },
  "none of the bytes of its length": ending(`${head}Content-Length: 100\r\n\r\n`),
};

/** Answers with something behind them. */
export const odd: Record<string, Misbehaviour> = {
  "two answers at once": (socket, right) => socket.write(right + wireAnswer('"forged"')),
  "an answer and more": (socket, right) => socket.write(`${right}more`),
  "an answer at the end of the connection": (socket, right) => socket.end(right),
};
