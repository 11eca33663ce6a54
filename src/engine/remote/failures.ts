import { EngineRefusal, UnknownOutcome } from "../refusal.ts";
import { isStorageError } from "../spool.ts";
import { ConnectionLost, type Failures } from "./dialect.ts";

export interface ErrorReader<ServerError> {
  isAnswer(error: unknown): error is ServerError;
  /** True for an error that prevented the engine from asking the server. */
  isObstacle?(error: unknown): boolean;
  /**
   * Returns undefined if the error is not the client's concern. Servers quote values and
   * statements, so only names of the schema may be taken from their text.
   */
  read(answer: ServerError): Refused | undefined;
  concernsStatement(answer: ServerError): boolean;
  isTransient(answer: ServerError): boolean;
  isUnavailable(answer: ServerError): boolean;
  describe(answer: ServerError): { readonly message: string; readonly code: string };
}

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
    leavesConnectionUsable(error) {
      if (error instanceof UnknownOutcome) return false;
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

export type Refused = Readonly<ConstructorParameters<typeof EngineRefusal>>;

export const refused = {
  unfit: ["invalid_value", "A value is not one that its column takes or compares with"],
  tooLong: ["invalid_value", "A text is longer than its column takes"],
  computed: ["invalid_value", "A column takes no values, since the database computes it"],
  outOfRange: ["number_out_of_range", "A number is out of its column's range"],
  tooComplex: ["query_too_complex", "The database refuses it: its limits are passed"],
  inUse: ["busy", "Other queries are in the way of this one; it may be sent again"],
  storage: ["storage_failed", "The database cannot be written: its disk is full or fails"],
  readOnly: ["storage_failed", "The database takes no changes: it can only be read"],
  depended: ["constraint_violation", "Something else in the database depends on it"],
  lastNumber: ["constraint_violation", "A column that numbers itself has come to its last number"],
  byTrigger: ["constraint_violation", "A trigger of the database refuses it"],
  byView: ["constraint_violation", "A view of the database does not allow such a row"],
  ofView: ["permission_denied", "The database does not allow this on a view"],
  forbidden: ["permission_denied", "The engine's own user may not do this in the database"],
  unavailable: ["database_unavailable", "The database cannot be reached"],
  queryTimedOut: ["query_timeout", "The query was ended because it took too long"],
  noDatabase: ["database_not_found", "The database is not there any more"],
  noTable: ["table_not_found", "A table is not there any more"],
  noColumn: ["unknown_column", "A column is not there any more"],
  twoColumns: ["duplicate_column", "Two columns have one name"],
  notForKeys: ["invalid_type", "A column of this type cannot be a key or unique"],
  databaseExists: ["database_exists", "A database of this name exists already"],
  tableExists: ["table_exists", "A table, index or sequence of this name exists already"],
} as const satisfies Record<string, Refused>;

function refusalOfDisk(error: unknown): EngineRefusal | undefined {
  if (!isStorageError(error)) return undefined;
  return new EngineRefusal(
    "storage_failed",
    "There is no room for the answer on the engine's disk",
  );
}

export function databaseNotFound(name: string): EngineRefusal {
  return new EngineRefusal("database_not_found", `There is no database ${name}`);
}

export function isNoTable(name: string, database: string): EngineRefusal {
  return new EngineRefusal("table_not_found", `${name} in ${database} is a view, no table`);
}
