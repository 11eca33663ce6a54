import { DatabaseError } from "pg";
import { EngineRefusal, type RefusalCode } from "../refusal.ts";
import { isStorageError } from "../spool.ts";
import { PasswordMissing } from "./password.ts";

/** The connection broke, or there is none to be had. */
export class ConnectionLost extends Error {
  constructor(cause: unknown) {
    super("The connection to PostgreSQL was lost", { cause });
    this.name = "ConnectionLost";
  }
}

type Refused = readonly [RefusalCode, string];

const unfit: Refused = [
  "invalid_value",
  "A value is not one that its column takes or compares with",
];
const outOfRange: Refused = ["number_out_of_range", "A number is out of its column's range"];
const complex: Refused = ["query_too_complex", "The database refuses it: its limits are passed"];
const inUse: Refused = ["busy", "Other queries are in the way of this one; it may be sent again"];
const storage: Refused = [
  "storage_failed",
  "The database cannot be written: its disk is full or fails",
];
const depended: Refused = ["constraint_violation", "Something else in the database depends on it"];
const ofView: Refused = ["permission_denied", "The database does not allow this on a view"];
const unavailable: Refused = ["database_unavailable", "The database cannot be reached"];

/** What to say of PostgreSQL's error codes; of those of one class by its first two characters. */
const refusals: ReadonlyMap<string, Refused> = new Map<string, Refused>([
  ["08", unavailable],
  ["22", unfit],
  ["22001", ["invalid_value", "A text is longer than its column takes"]],
  ["22003", outOfRange],
  ["2200H", ["constraint_violation", "A column that numbers itself has come to its last number"]],
  ["25006", ["storage_failed", "The database takes no changes: it can only be read"]],
  ["28", unavailable],
  ["2BP01", depended],
  ["3D000", unavailable],
  ["3F000", ["database_not_found", "The database is not there any more"]],
  ["40", inUse],
  ["42501", ["permission_denied", "The engine's own user may not do this in the database"]],
  ["42701", ["duplicate_column", "Two columns have one name"]],
  ["42703", ["unknown_column", "A column is not there any more"]],
  ["42704", ["invalid_type", "A column of this type cannot be a key or unique"]],
  ["42804", unfit],
  ["42846", unfit],
  ["42883", unfit],
  ["428C9", ["invalid_value", "A column takes no values, since the database computes it"]],
  ["42P01", ["table_not_found", "A table is not there any more"]],
  ["42P06", ["database_exists", "A database of this name exists already"]],
  ["42P07", ["table_exists", "A table, index or sequence of this name exists already"]],
  ["42809", ofView],
  ["42P22", unfit],
  ["44000", ["constraint_violation", "A view of the database does not allow such a row"]],
  ["53", unavailable],
  ["53100", storage],
  ["54", complex],
  ["55000", ofView],
  ["55006", inUse],
  ["55P03", inUse],
  ["57", unavailable],
  ["57014", ["query_timeout", "The query was ended because it took too long"]],
  ["58030", storage],
  ["P0001", ["constraint_violation", "A trigger of the database refuses it"]],
]);

/** Errors after which a whole transaction is tried again: it lost against another one. */
const transient = new Set(["40001", "40P01"]);

/** True for an error that the same transaction may not meet when it is run again. */
export function isTransient(error: unknown): boolean {
  return error instanceof DatabaseError && transient.has(error.code ?? "");
}

/** True for an error of one statement, and not of the server, the connection or the time. */
export function concernsStatement(error: unknown): boolean {
  if (error instanceof EngineRefusal) return true;
  if (!(error instanceof DatabaseError)) return false;
  return !["08", "40", "53", "57"].includes(error.code?.slice(0, 2) ?? "");
}

/**
 * What to tell the client about an error; undefined if it is not the client's. PostgreSQL's own
 * messages quote values and statements, so none of their text is used, only names of the schema.
 */
export function refusalOf(error: unknown): EngineRefusal | undefined {
  if (error instanceof EngineRefusal) return error;
  if (error instanceof ConnectionLost || error instanceof PasswordMissing) {
    return new EngineRefusal(...unavailable);
  }
  if (isStorageError(error)) {
    return new EngineRefusal(
      "storage_failed",
      "There is no room for the answer on the engine's disk",
    );
  }
  if (!(error instanceof DatabaseError)) return undefined;
  const code = error.code ?? "";
  if (code.startsWith("23")) return new EngineRefusal("constraint_violation", violation(error));
  const found = refusals.get(code) ?? refusals.get(code.slice(0, 2));
  return found === undefined ? undefined : new EngineRefusal(...found);
}

/** An error that may be logged: what PostgreSQL says in words stays out of it. */
export function withoutWords(error: unknown): unknown {
  if (!(error instanceof DatabaseError)) return error;
  const { code = "none", routine = "unknown" } = error;
  const wordless = `PostgreSQL refused a statement: SQLSTATE ${code}, routine ${routine}`;
  return Object.assign(new Error(wordless), { code });
}

/** Class 23 (PostgreSQL, appendix A): integrity constraint violation. */
function violation({ code, table, column, constraint }: DatabaseError): string {
  const named = constraint === undefined ? "" : ` (constraint "${constraint}")`;
  const place = table === undefined ? "A table" : `Table ${table}`;
  switch (code) {
    case "23502":
      return `${place} takes no null in column "${column ?? ""}"`;
    case "23503":
      return `${place} and another one would no longer fit together${named}`;
    case "23505":
      return `${place} has such a value already where it may stand once${named}`;
    default:
      return `${place} does not allow such a row${named}`;
  }
}

/** True for an error of a server that is down, about to start, or full of connections. */
export function isUnavailable(error: unknown): boolean {
  if (error instanceof ConnectionLost) return true;
  return error instanceof DatabaseError && /^(08|53|57P)/.test(error.code ?? "");
}
