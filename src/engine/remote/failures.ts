import { EngineRefusal } from "../refusal.ts";
import { ConnectionLost } from "./connection-lost.ts";
import type { Failures } from "./dialect.ts";
import { type Refused, refusalOfDisk, refused, UnknownOutcome } from "./refused.ts";

/** How the errors of one kind of server are read. */
export interface ErrorReader<ServerError> {
  /** True for an error that the server itself has answered. */
  isAnswer(error: unknown): error is ServerError;
  /** True for an error that kept the engine from asking the server at all. */
  isObstacle?(error: unknown): boolean;
  /**
   * What the client is told; undefined if it is not the client's. Servers quote values and
   * statements, so none of their text is used, only names of the schema.
   */
  read(answer: ServerError): Refused | undefined;
  /** True for an error of one statement, not of the server, the connection or the time. */
  concernsStatement(answer: ServerError): boolean;
  /** True if the transaction lost against another one, and may be run again. */
  isTransient(answer: ServerError): boolean;
  /** True if the server is down, about to start, or full of connections. */
  isUnavailable(answer: ServerError): boolean;
  /** The error by its numbers, without the server's words. */
  describe(answer: ServerError): { readonly message: string; readonly code: string };
}

/** What errors mean where the server's own are read in this way. */
export function failuresOf<ServerError>(reader: ErrorReader<ServerError>): Failures {
  return {
    refusalOf(error) {
      if (error instanceof EngineRefusal) return error;
      if (error instanceof ConnectionLost || reader.isObstacle?.(error)) {
        return new EngineRefusal(...refused.unavailable);
      }
      const found = reader.isAnswer(error) ? reader.read(error) : undefined;
      return found === undefined ? refusalOfDisk(error) : new EngineRefusal(...found);
    },
    concernsStatement(error) {
      if (error instanceof EngineRefusal) return true;
      return reader.isAnswer(error) && reader.concernsStatement(error);
    },
    isTransient: (error) => reader.isAnswer(error) && reader.isTransient(error),
    isSettled(error) {
      if (error instanceof UnknownOutcome) return false;
      return reader.isAnswer(error) || error instanceof EngineRefusal;
    },
    isUnavailable(error) {
      if (error instanceof ConnectionLost) return true;
      return reader.isAnswer(error) && reader.isUnavailable(error);
    },
    withoutWords(error) {
      if (!reader.isAnswer(error)) return error;
      const { message, code } = reader.describe(error);
      return Object.assign(new Error(message), { code });
    },
  };
}
