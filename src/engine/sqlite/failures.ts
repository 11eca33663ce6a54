import { isStorageError } from "../../core/base/files/guarded.ts";
import { EngineRefusal, type Incident } from "../refusal.ts";
import type { Origin } from "../remote/dialect.ts";
import {
  failed,
  operatorsCodes,
  type Refused,
  refused,
  safeWords,
  worded,
} from "../remote/failures.ts";
import { tableNamed, violated, violations } from "../sql/answers.ts";

const limitMessage = /too (many|large|complex|big|much)/i;

export function toRefusal(error: unknown, origin?: Origin): EngineRefusal | undefined {
  if (error instanceof EngineRefusal) return error;
  if (!(error instanceof Error)) return undefined;
  if (isStorageError(error)) return withCause(refused.storage, error);
  if (!("errcode" in error)) return undefined;
  return withCause(read(error, Number(error.errcode), origin), error);
}

function withCause([code, message, options]: Refused, cause: Error): EngineRefusal {
  const isForOperator = operatorsCodes.has(code) && "errcode" in cause;
  const incident = isForOperator ? describeIncident(cause) : undefined;
  return new EngineRefusal(code, message, { cause, incident, ...options });
}

function describeIncident(error: Error): Incident {
  const text = (name: "errcode" | "errstr") =>
    name in error ? String(Reflect.get(error, name)) : "";
  return { code: `SQLite ${text("errcode")}`, reason: ownWords(error.message) ?? text("errstr") };
}

/** By the low byte, the primary code (https://sqlite.org/rescode.html). */
function read({ message }: Error, errcode: number, origin: Origin | undefined): Refused {
  switch (errcode & 0xff) {
    case 5: // SQLITE_BUSY
    case 6: // SQLITE_LOCKED
      return ["busy", "The database is in use by another process"];
    case 8: // SQLITE_READONLY
      return refused.readOnly;
    case 10: // SQLITE_IOERR
    case 13: // SQLITE_FULL
      return refused.storage;
    case 14: // SQLITE_CANTOPEN
      return ["storage_failed", "The gateway cannot open the database file or its journal"];
    case 18: // SQLITE_TOOBIG
      return tooComplex(message);
    case 19: // SQLITE_CONSTRAINT
      return errcode === CONSTRAINT_TRIGGER
        ? worded(refused.byTrigger, safeWords(message, origin))
        : translateViolation(message, origin?.tables[0]);
    case 20: // SQLITE_MISMATCH
      return ["invalid_value", "An integer primary key takes only whole numbers of 64 bits"];
    default:
      // SQLITE_ERROR also reports limits, and values that functions do not take.
      if (limitMessage.test(message)) return tooComplex(message);
      if (message === "malformed JSON") return notJson;
      if (message.startsWith("foreign key mismatch")) {
        return failed(origin, undefined, "a foreign key refers to columns that are not unique");
      }
      return failed(origin, ownWords(message));
  }
}

const notJson: Refused = [
  "invalid_value",
  "An index, view, trigger or column of the database needs JSON and finds another text",
];

/** SQLite quotes what is not a name or a number of its own. */
function ownWords(message: string): string | undefined {
  return /["'`]/.test(message) ? undefined : message;
}

const CONSTRAINT_TRIGGER = 1811;

function tooComplex(message: string): Refused {
  return ["query_too_complex", `The query exceeds a limit of the database: ${message}`];
}

export function refusing<Result>(work: () => Result): Result {
  try {
    return work();
  } catch (error) {
    throw toRefusal(error) ?? error;
  }
}

/** Translates messages such as `UNIQUE constraint failed: users.id`. */
function translateViolation(message: string, ofQuery: string | undefined): Refused {
  const unnamed = tableNamed(ofQuery);
  const [, rule, what = ""] = /^([A-Z ]+) constraint failed(?:: (.*))?$/s.exec(message) ?? [];
  const [, table = "", first = ""] = /^([^.]+)\.(.*)$/s.exec(what) ?? [];
  switch (rule) {
    case "NOT NULL":
      return violations.required(`Table ${table}`, first, { table });
    case "UNIQUE":
      // SQLite names an index on expressions instead of its columns.
      if (table === "") {
        const [, name] = /^index '(.+)'$/.exec(what) ?? [];
        return violations.unique(unnamed, ` (${what})`, { table: ofQuery, name });
      }
      return violations.unique(`Table ${table}`, ` (${first.replaceAll(`, ${table}.`, ", ")})`, {
        table,
        columns: first.split(`, ${table}.`),
      });
    case "CHECK":
      // Without a name, SQLite quotes the expression.
      return violations.check(unnamed, ` (constraint "${what}")`, {
        table: ofQuery,
        name: /^\w+$/.test(what) ? what : undefined,
      });
    case "FOREIGN KEY":
      return violations.reference(unnamed, "", { table: ofQuery });
    default:
      return violated(message);
  }
}
