import { EngineRefusal, RowTooLong, UnknownOutcome } from "../refusal.ts";
import { isStorageError } from "../spool.ts";
import { ConnectionLost, type Failures } from "./dialect.ts";

export interface ErrorReader<ServerError> {
  isAnswer(error: unknown): error is ServerError;
  /** True for an error that occurred before the server was asked. */
  isObstacle?(error: unknown): boolean;
  /**
   * Undefined if the error does not concern the client. Servers quote values and statements, so only
   * schema names may be taken from their text.
   */
  read(answer: ServerError, table: string | undefined): Refused | undefined;
  concernsStatement(answer: ServerError): boolean;
  isTransient(answer: ServerError): boolean;
  isUnavailable(answer: ServerError): boolean;
  describe(answer: ServerError): { readonly message: string; readonly code: string };
}

export function failuresOf<ServerError>(reader: ErrorReader<ServerError>): Failures {
  return {
    refusalOf(error, table) {
      if (error instanceof EngineRefusal) return error;
      if (error instanceof ConnectionLost || reader.isObstacle?.(error)) {
        return new EngineRefusal(...refused.unavailable);
      }
      const found = reader.isAnswer(error) ? reader.read(error, table) : undefined;
      return found === undefined ? refusalOfDisk(error) : new EngineRefusal(...found);
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
    redact(error) {
      if (!reader.isAnswer(error)) return error;
      const { message, code } = reader.describe(error);
      return Object.assign(new Error(message), { code });
    },
  };
}

function isOfRow(error: unknown): boolean {
  return error instanceof RowTooLong || (error instanceof EngineRefusal && isOfRow(error.cause));
}

export type Refused = Readonly<ConstructorParameters<typeof EngineRefusal>>;

export const refused = {
  unfit: ["invalid_value", "A value does not fit its column or cannot be compared with it"],
  tooLong: ["invalid_value", "A text is longer than its column allows"],
  tooLongInside: [
    "invalid_value",
    "A trigger or function of the database makes a text that is longer than its column allows",
  ],
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
  depended: ["constraint_violation", "Other objects in the database depend on it"],
  lastNumber: ["constraint_violation", "A serial column has reached its last number"],
  byTrigger: ["constraint_violation", "A trigger of the database refused the change"],
  byView: ["constraint_violation", "A view of the database does not allow this row"],
  ofView: ["permission_denied", "The database does not allow this on a view"],
  forbidden: ["permission_denied", "The engine's database user lacks the privilege for this"],
  unavailable: ["database_unavailable", "The database cannot be reached"],
  queryTimedOut: ["query_timeout", "The query was canceled because it took too long"],
  noDatabase: ["database_not_found", "The database no longer exists"],
  noTable: ["table_not_found", "A table no longer exists"],
  noColumn: ["unknown_column", "A column no longer exists"],
  twoColumns: ["duplicate_column", "Two columns have the same name"],
  notForKeys: ["invalid_type", "A column of this type cannot be part of a key"],
  databaseExists: ["database_exists", "A database with this name already exists"],
  tableExists: ["table_exists", "A table, index or sequence with this name already exists"],
} as const satisfies Record<string, Refused>;

function refusalOfDisk(error: unknown): EngineRefusal | undefined {
  if (!isStorageError(error)) return undefined;
  return new EngineRefusal("storage_failed", "The engine's disk has no space for the answer");
}

export function databaseNotFound(name: string): EngineRefusal {
  return new EngineRefusal("database_not_found", `There is no database ${name}`);
}

export function isNoTable(name: string, database: string): EngineRefusal {
  return new EngineRefusal("table_not_found", `${name} in ${database} is a view, not a table`);
}
