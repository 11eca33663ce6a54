import { ConnectionLost } from "../remote/connection-lost.ts";

/** What the server answers instead of a result. */
export class ServerError extends Error {
  /** The number of the error, which servers of this protocol share. */
  readonly number: number;
  /** The server's words, which quote values. */
  readonly words: string;

  constructor(number: number, words: string, cause: Error) {
    super(`The server refused a statement: ${number}`, { cause });
    this.name = "ServerError";
    this.number = number;
    this.words = words;
  }
}

/** Errors of the server have higher numbers; those of the system, in the same place, have none. */
const firstNumber = 1000;

/** An error of the driver's as `ServerError` if the server has sent it, else as `ConnectionLost`. */
export function readError(error: unknown): ServerError | ConnectionLost {
  if (!(error instanceof Error)) return new ConnectionLost(error);
  const number = "errno" in error ? error.errno : undefined;
  if (typeof number !== "number" || number < firstNumber) return new ConnectionLost(error);
  return new ServerError(number, error.message, error);
}
