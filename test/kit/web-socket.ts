import { once } from "node:events";
import type { IncomingMessage } from "node:http";
import type { Test } from "tap";
import { type ClientOptions, WebSocket, WebSocketServer } from "ws";
import { eventually } from "./eventually.ts";
import type { RecordingUpstream } from "./upstream.ts";

/** The key of every handshake here, and what a server must answer to it (RFC 6455, section 1.3). */
export const KEY = "dGhlIHNhbXBsZSBub25jZQ==";
export const ACCEPT = "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=";

/** The headers of a handshake, for plain HTTP clients. */
export function handshake(
  token?: string,
  more: Readonly<Record<string, string>> = {},
): Record<string, string> {
  return {
    Connection: "Upgrade",
    Upgrade: "websocket",
    "Sec-WebSocket-Key": KEY,
    "Sec-WebSocket-Version": "13",
    ...(token === undefined ? {} : { Authorization: `Bearer ${token}` }),
    ...more,
  };
}

export interface Accepted {
  readonly socket: WebSocket;
  readonly request: IncomingMessage;
  readonly heard: string[];
}

interface Acceptance {
  readonly headers?: readonly string[];
  readonly greeting?: string;
}

export function acceptSockets(
  t: Test,
  { server }: RecordingUpstream,
  { headers = [], greeting }: Acceptance = {},
): Accepted[] {
  const accepted: Accepted[] = [];
  const sockets = new WebSocketServer({ server });
  t.teardown(() => {
    for (const client of sockets.clients) client.terminate();
    sockets.close();
    server.removeAllListeners("upgrade");
  });
  sockets.on("headers", (lines) => lines.push(...headers));
  sockets.on("connection", (socket, request) => {
    const heard: string[] = [];
    accepted.push({ socket, request, heard });
    socket.on("error", () => {});
    socket.on("message", (data, isBinary) => {
      heard.push(String(data));
      socket.send(data, { binary: isBinary });
    });
    if (greeting !== undefined) socket.send(greeting);
  });
  return accepted;
}

export class SocketClient {
  readonly socket: WebSocket;
  readonly answer: IncomingMessage;
  readonly heard: string[] = [];
  /** The code with which it was closed: 1006 if it was cut. */
  code: number | undefined;

  private constructor(socket: WebSocket, answer: IncomingMessage, heard: string[]) {
    this.socket = socket;
    this.answer = answer;
    this.heard = heard;
    socket.on("close", (code) => {
      this.code = code;
    });
  }

  /** @throws Error if it is not opened */
  static async open(
    url: string,
    headers: Readonly<Record<string, string>> = {},
    protocols: string[] = [],
    options: ClientOptions = {},
  ): Promise<SocketClient> {
    const socket = new WebSocket(url.replace(/^http/, "ws"), protocols, { ...options, headers });
    const heard: string[] = [];
    socket.on("message", (data) => heard.push(String(data)));
    const [opening] = await Promise.all([once(socket, "upgrade"), once(socket, "open")]);
    const [answer]: IncomingMessage[] = opening;
    if (answer === undefined) throw new Error("opened without an answer");
    socket.on("error", () => {});
    return new SocketClient(socket, answer, heard);
  }

  get isClosed(): boolean {
    return this.code !== undefined;
  }

  async echo(text: string): Promise<void> {
    const count = this.heard.length;
    this.socket.send(text);
    await eventually("the echo arrives", () => this.heard.slice(count).includes(text));
  }

  cut(): void {
    this.socket.terminate();
  }
}

export function openSocket(url: string, token?: string): Promise<SocketClient> {
  return SocketClient.open(url, token === undefined ? {} : { Authorization: `Bearer ${token}` });
}
