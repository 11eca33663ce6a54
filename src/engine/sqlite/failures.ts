import { EngineRefusal } from "../refusal.ts";
import { isStorageError } from "../spool.ts";
import { violations } from "../sql/answers.ts";

/** SQLite's primary result codes (https://sqlite.org/rescode.html). */
const resultCodes = {
  error: 1,
  busy: 5,
  locked: 6,
  readOnly: 8,
  inputOutput: 10,
  full: 13,
  cannotOpen: 14,
  tooBig: 18,
  constraint: 19,
};

const limitMessage = /too (many|large|complex|big|much)/i;

/** Returns undefined if the error is not the client's concern. */
export function refusalOf(error: unknown): EngineRefusal | undefined {
  if (error instanceof EngineRefusal) return error;
  if (!(error instanceof Error)) return undefined;
  if (isStorageError(error)) return storageFailed(error);
  if (!("errcode" in error)) return undefined;
  // The low byte is the primary code. The rest distinguishes its variants.
  switch (Number(error.errcode) & 0xff) {
    case resultCodes.constraint:
      return new EngineRefusal("constraint_violation", violationOf(error.message), {
        cause: error,
      });
    case resultCodes.busy:
    case resultCodes.locked:
      return new EngineRefusal("busy", "The database is in use by another process", {
        cause: error,
      });
    case resultCodes.readOnly:
    case resultCodes.inputOutput:
    case resultCodes.full:
    case resultCodes.cannotOpen:
      return storageFailed(error);
    case resultCodes.tooBig:
      return tooComplex(error);
    case resultCodes.error:
      return limitMessage.test(error.message) ? tooComplex(error) : undefined;
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

/**
 * Translates a message such as `UNIQUE constraint failed: users.id` to the wording for all
 * databases.
 */
function violationOf(words: string): string {
  const [, rule, what = ""] = /^([A-Z ]+) constraint failed(?:: (.*))?$/s.exec(words) ?? [];
  const [, table = "", first = ""] = /^([^.]+)\.(.*)$/s.exec(what) ?? [];
  switch (rule) {
    case "NOT NULL":
      return violations.required(`Table ${table}`, first);
    case "UNIQUE":
      // SQLite names an index on expressions instead of its columns.
      if (table === "") return violations.unique("A table", ` (${what})`);
      return violations.unique(`Table ${table}`, ` (${first.replaceAll(`, ${table}.`, ", ")})`);
    case "CHECK":
      return violations.other("A table", ` (constraint "${what}")`);
    case "FOREIGN KEY":
      return violations.reference("A table", "");
    default:
      return words;
  }
}

function storageFailed(cause: Error): EngineRefusal {
  return new EngineRefusal(
    "storage_failed",
    "The database cannot be written: its disk is full or fails",
    {
      cause,
    },
  );
}

function tooComplex(cause: Error): EngineRefusal {
  return new EngineRefusal("query_too_complex", `The database refuses it: ${cause.message}`, {
    cause,
  });
}
