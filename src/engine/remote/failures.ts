import { isStorageError } from "../../core/base/files/guarded.ts";
import { EngineRefusal, type Incident, RowTooLong, UnknownOutcome } from "../refusal.ts";
import { has64Bits } from "../sql/values.ts";
import { ConnectionLost, type Failures, type Origin } from "./dialect.ts";

interface ErrorReader<ServerError> {
  isAnswer(error: unknown): error is ServerError;
  /** True for an error that occurred before the server was asked. */
  isObstacle?(error: unknown): boolean;
  /** Servers quote values and statements: see `safeWords` and take only schema names from their text. */
  read(answer: ServerError, origin: Origin | undefined): Refused;
  concernsStatement(answer: ServerError): boolean;
  isTransient(answer: ServerError): boolean;
  isUnavailable(answer: ServerError): boolean;
  describe(answer: ServerError): Incident;
}

export function createFailures<ServerError>(reader: ErrorReader<ServerError>): Failures {
  return {
    refusalOf(error, origin) {
      if (error instanceof EngineRefusal) return error;
      if (error instanceof ConnectionLost || reader.isObstacle?.(error)) {
        return new EngineRefusal(...refused.unavailable);
      }
      if (!reader.isAnswer(error)) {
        return isStorageError(error) ? new EngineRefusal(...refused.noSpace) : undefined;
      }
      const found = reader.read(error, origin);
      const [code, message, options] = found;
      const isForOperator = operatorsCodes.has(code) || found === refused.foreignServer;
      const incident = isForOperator ? reader.describe(error) : undefined;
      return new EngineRefusal(code, message, { ...options, incident });
    },
    concernsStatement(error) {
      if (error instanceof EngineRefusal) return true;
      return reader.isAnswer(error) && reader.concernsStatement(error);
    },
    isTransient: (error) => reader.isAnswer(error) && reader.isTransient(error),
    leavesConnectionUsable(error) {
      if (error instanceof UnknownOutcome || isOfRow(error)) return false;
      return reader.isAnswer(error) || error instanceof EngineRefusal;
    },
    isUnavailable(error) {
      if (error instanceof ConnectionLost) return true;
      return reader.isAnswer(error) && reader.isUnavailable(error);
    },
  };
}

/** The operator can fix the cause of these, so the log says more than the answer. */
export const operatorsCodes: ReadonlySet<string> = new Set(["statement_failed", "storage_failed"]);

function isOfRow(error: unknown): boolean {
  return error instanceof RowTooLong || (error instanceof EngineRefusal && isOfRow(error.cause));
}

export type Refused = Readonly<ConstructorParameters<typeof EngineRefusal>>;

const quoted = /(["'`])(?:[\w$-]+\1?\.\1?)?([\w$-]+)\1/g;

/**
 * The database's own words, or those before the first colon, if they are prose: no digit and no
 * quotation other than names of the query's tables. Databases quote values and count with digits.
 */
export function safeWords(text: string, origin?: Origin): string | undefined {
  const isOwn = (name: string) => origin?.tables.includes(name) === true;
  const isProse = (part: string) =>
    /^(?:[\p{L}\p{M} ,.;:()!?_-]|(?<=\p{L})'(?=\p{L}))+$/u.test(
      part.replace(quoted, (all, _, name) => (isOwn(name) ? "" : all)),
    );
  const found = [text, text.replace(/: .*$/s, "")].find(isProse);
  return found?.replace(quoted, "$2").replace(/[.:]$/, "");
}

/** Words are only for callers who may see the whole schema: a trigger may put anything into them. */
export function worded([code, plain]: Refused, words: string | undefined): Refused {
  return [code, words === undefined ? plain : `${plain}: ${words}`, { plain }];
}

/** @param reason for every caller, unlike `words` */
export function failed(origin: Origin | undefined, words?: string, reason?: string): Refused {
  const tables = [...new Set(origin?.tables)].join(", ");
  const plain = `The database cannot run this${tables && ` on ${tables}`}`;
  return worded(["statement_failed", reason === undefined ? plain : `${plain}: ${reason}`], words);
}

/** For every caller, since the message names nothing of the database. */
export function nameless(message: string) {
  return ["constraint_violation", message, { plain: message }] as const;
}

export const refused = {
  unfit: ["invalid_value", "A value does not fit its column or cannot be compared with it"],
  tooLong: ["invalid_value", "A text is longer than its column allows"],
  tooLongInside: [
    "invalid_value",
    "A trigger or function of the database makes a text that is longer than its column allows",
  ],
  notEncoded: ["invalid_value", "A text has a character that the database's encoding lacks"],
  dividedByZero: ["invalid_value", "A view, trigger or column of the database divides by zero"],
  computed: ["invalid_value", "A column cannot be set, since the database computes it"],
  outOfRange: ["number_out_of_range", "A number is out of its column's range"],
  outOfRangeInside: [
    "number_out_of_range",
    "A trigger or function of the database makes a number that is out of range",
  ],
  textTooLong: [
    "query_too_complex",
    "A computed text is longer than 1 MiB in a row; compute shorter texts",
  ],
  tooComplex: ["query_too_complex", "The query exceeds a limit of the database"],
  inUse: ["busy", "The query conflicts with other queries; retry it"],
  storage: ["storage_failed", "The database cannot be written: its disk is full or failing"],
  readOnly: ["storage_failed", "The database is read-only"],
  noSpace: ["storage_failed", "The engine's disk has no space for the answer"],
  depended: nameless("Other objects in the database depend on it"),
  lastNumber: nameless("A serial column has reached its last number"),
  byTrigger: ["constraint_violation", "A trigger or function of the database refused this"],
  raisedOutage: [
    "database_unavailable",
    "A trigger or function of the database reports that something is unavailable",
  ],
  raisedValue: ["invalid_value", "A trigger or function of the database refused a value"],
  raisedDenial: ["permission_denied", "A trigger or function of the database does not allow this"],
  byRowSecurity: [
    "permission_denied",
    "A row-level security policy of the database does not allow this row",
  ],
  byView: nameless("A view of the database does not allow this row"),
  ofView: ["permission_denied", "The database does not allow this on a view"],
  forbidden: ["permission_denied", "The engine's database user lacks the privilege for this"],
  unavailable: ["database_unavailable", "The database cannot be reached"],
  foreignServer: [
    "database_unavailable",
    "Another server that the database asks for this cannot be reached",
  ],
  exhausted: ["database_unavailable", "The database lacks memory or another resource for this now"],
  queryTimedOut: ["query_timeout", "The query was canceled because it took too long"],
  noDatabase: ["database_not_found", "The database no longer exists"],
  noTable: ["table_not_found", "A table no longer exists"],
  noColumn: ["unknown_column", "A column no longer exists"],
  twoColumns: ["duplicate_column", "Two columns have the same name"],
  notForKeys: ["invalid_type", "A column of this type cannot be part of a key"],
  databaseExists: ["database_exists", "A database with this name already exists"],
  tableExists: ["table_exists", "A table, index or sequence with this name already exists"],
} as const satisfies Record<string, Refused>;

/** @throws EngineRefusal for the infinity to which large doubles add up */
export function requireFinite(value: number): number {
  if (Number.isFinite(value)) return value;
  throw new EngineRefusal(...refused.outOfRange);
}

/** @throws EngineRefusal */
export function require64Bits(value: bigint): bigint {
  if (has64Bits(value)) return value;
  throw new EngineRefusal(...refused.outOfRange);
}

export function databaseNotFound(name: string): EngineRefusal {
  return new EngineRefusal("database_not_found", `There is no database ${name}`);
}

export function isNoTable(name: string, database: string): EngineRefusal {
  return new EngineRefusal("table_not_found", `${name} in ${database} is a view, not a table`);
}
