import { once } from "node:events";
import { connect, type Socket } from "node:net";
import type { Test } from "tap";
import { eventually, PATIENCE_MS } from "./eventually.ts";
import { isTaken } from "./process-info.ts";

/** A plain connection, to send exact bytes and see every byte of the answer. */
export class Wire {
  readonly socket: Socket;
  /** All received bytes in latin1. */
  text = "";
  /** True once the other side has ended or cut the connection. */
  isClosed = false;
  readonly #waiting = new Set<() => void>();

  private constructor(socket: Socket) {
    this.socket = socket;
    socket.setEncoding("latin1").on("data", (text) => {
      this.text += text;
      this.#look();
    });
    for (const event of ["end", "close", "error"]) {
      socket.on(event, () => {
        this.isClosed = true;
        this.#look();
      });
    }
  }

  /** @param t the test at whose end the connection is cut */
  static async open(url: string, t?: Pick<Test, "teardown">): Promise<Wire> {
    const { hostname, port } = new URL(url);
    const socket = connect({ host: hostname, port: Number(port) });
    t?.teardown(() => socket.destroy());
    await once(socket, "connect");
    return new Wire(socket);
  }

  static async isRefused(url: string): Promise<boolean> {
    try {
      (await Wire.open(url)).cut();
      return false;
    } catch {
      return true;
    }
  }

  send(text: string): void {
    this.socket.write(text, "latin1");
  }

  /** Resolves to all received text once it matches. */
  async until(pattern: RegExp): Promise<string> {
    await this.#wait(() => pattern.test(this.text), `${pattern}`);
    return this.text;
  }

  async untilClosed(): Promise<string> {
    await this.#wait(() => this.isClosed, "the end");
    return this.text;
  }

  /** Resolves when the other side has read all that was sent. */
  async taken(): Promise<void> {
    await eventually("what was sent is read", () => isTaken(this.socket));
  }

  cut(): void {
    this.socket.destroy();
  }

  async #wait(isSo: () => boolean, what: string): Promise<void> {
    const { promise, resolve, reject } = Promise.withResolvers<void>();
    const look = () => {
      if (isSo()) resolve();
      else if (this.isClosed) reject(new Error(`closed before ${what}:\n${this.text}`));
    };
    const timer = setTimeout(
      () => reject(new Error(`nothing like ${what} in:\n${this.text.slice(-2000)}`)),
      PATIENCE_MS,
    );
    this.#waiting.add(look);
    look();
    await promise.finally(() => {
      clearTimeout(timer);
      this.#waiting.delete(look);
    });
  }

  #look(): void {
    for (const look of this.#waiting) look();
  }
}

/** A request in HTTP/1.1; `Content-Length` is added if there is a body. */
export function wireRequest(
  line: string,
  headers: Readonly<Record<string, string>>,
  body = "",
): string {
  const length = body === "" ? {} : { "Content-Length": String(Buffer.byteLength(body)) };
  const fields = Object.entries({ Host: "gate.test", ...length, ...headers });
  const head = fields.map(([name, value]) => `${name}: ${value}\r\n`).join("");
  return `${line} HTTP/1.1\r\n${head}\r\n${body}`;
}
