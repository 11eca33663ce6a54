import { EngineRefusal, type RefusalCode } from "../refusal.ts";
import { isStorageError } from "../spool.ts";
import { violations } from "../sql/answers.ts";

const limitMessage = /too (many|large|complex|big|much)/i;

/** @param table the table of the query, for errors that name none */
export function refusalOf(error: unknown, table?: string): EngineRefusal | undefined {
  if (error instanceof EngineRefusal) return error;
  if (!(error instanceof Error)) return undefined;
  const storage = "The database cannot be written: its disk is full or failing";
  const limits = `The query exceeds a limit of the database: ${error.message}`;
  const refusal = (code: RefusalCode, message: string) =>
    new EngineRefusal(code, message, { cause: error });
  if (isStorageError(error)) return refusal("storage_failed", storage);
  if (!("errcode" in error)) return undefined;
  // The low byte is the primary code (https://sqlite.org/rescode.html).
  switch (Number(error.errcode) & 0xff) {
    case 1: // SQLITE_ERROR
      return limitMessage.test(error.message) ? refusal("query_too_complex", limits) : undefined;
    case 5: // SQLITE_BUSY
    case 6: // SQLITE_LOCKED
      return refusal("busy", "The database is in use by another process");
    case 8: // SQLITE_READONLY
    case 10: // SQLITE_IOERR
    case 13: // SQLITE_FULL
    case 14: // SQLITE_CANTOPEN
      return refusal("storage_failed", storage);
    case 18: // SQLITE_TOOBIG
      return refusal("query_too_complex", limits);
    case 19: // SQLITE_CONSTRAINT
      return refusal("constraint_violation", violationOf(error.message, table));
    default:
      return undefined;
  }
}

export function refusing<Result>(work: () => Result): Result {
  try {
    return work();
  } catch (error) {
    throw refusalOf(error) ?? error;
  }
}

/** Translates messages such as `UNIQUE constraint failed: users.id`. */
function violationOf(message: string, ofQuery: string | undefined): string {
  const unnamed = ofQuery === undefined ? "A table" : `Table ${ofQuery}`;
  const [, rule, what = ""] = /^([A-Z ]+) constraint failed(?:: (.*))?$/s.exec(message) ?? [];
  const [, table = "", first = ""] = /^([^.]+)\.(.*)$/s.exec(what) ?? [];
  switch (rule) {
    case "NOT NULL":
      return violations.required(`Table ${table}`, first);
    case "UNIQUE":
      // SQLite names an index on expressions instead of its columns.
      if (table === "") return violations.unique(unnamed, ` (${what})`);
      return violations.unique(`Table ${table}`, ` (${first.replaceAll(`, ${table}.`, ", ")})`);
    case "CHECK":
      return violations.other(unnamed, ` (constraint "${what}")`);
    case "FOREIGN KEY":
      return violations.reference(unnamed, "");
    default:
      return message;
  }
}
