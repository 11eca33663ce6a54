import { DatabaseError } from "pg";
import { failuresOf, type Refused, refused } from "../remote/failures.ts";
import { brokenKey, violations } from "../sql/answers.ts";
import { PasswordMissing } from "./address.ts";

/** By SQLSTATE, or by its first two characters for a whole class. */
const refusals: ReadonlyMap<string, Refused> = new Map<string, Refused>([
  ["08", refused.unavailable],
  ["21000", ["invalid_value", "Two rows of the Upsert have keys that are equal in the database"]],
  ["22", refused.unfit],
  ["22001", refused.tooLong],
  ["22003", refused.outOfRange],
  ["2200H", refused.lastNumber],
  ["25006", refused.readOnly],
  ["28", refused.unavailable],
  ["2BP01", refused.depended],
  ["3D000", refused.unavailable],
  ["3F000", refused.noDatabase],
  ["40", refused.inUse],
  ["42501", refused.forbidden],
  ["42701", refused.twoColumns],
  ["42703", refused.noColumn],
  ["42704", refused.notForKeys],
  ["42804", refused.unfit],
  ["42846", refused.unfit],
  ["42883", refused.unfit],
  ["428C9", refused.computed],
  ["42P01", refused.noTable],
  ["42P04", refused.databaseExists],
  ["42P06", refused.databaseExists],
  ["42P07", refused.tableExists],
  ["42809", refused.ofView],
  ["42P22", refused.unfit],
  ["44000", refused.byView],
  ["53", refused.unavailable],
  ["53100", refused.storage],
  ["54", refused.tooComplex],
  ["55000", refused.ofView],
  ["55006", refused.inUse],
  ["55P03", refused.inUse],
  ["57", refused.unavailable],
  ["57014", refused.queryTimedOut],
  ["58030", refused.storage],
  ["P0001", refused.byTrigger],
]);

/** The transaction lost against another one and is retried. */
const transient = new Set(["40001", "40P01"]);

/** PostgreSQL, appendix A, "Error Codes". */
export const failures = failuresOf<DatabaseError>({
  isAnswer: (error) => error instanceof DatabaseError,
  isObstacle: (error) => error instanceof PasswordMissing,
  read(error, ofQuery) {
    const code = error.code ?? "";
    if (code === "54000" && error.routine === "rpad") return refused.textTooLong;
    if (code === "23503") return ofForeignKey(error);
    if (/ function /.test(error.where ?? "")) {
      if (code === "22001") return refused.tooLongInside;
      if (code === "22003") return refused.outOfRangeInside;
    }
    if (code.startsWith("23")) return ["constraint_violation", violation(error, ofQuery)];
    return refusals.get(code) ?? refusals.get(code.slice(0, 2));
  },
  concernsStatement: ({ code }) => !["08", "40", "53", "57"].includes(code?.slice(0, 2) ?? ""),
  isTransient: ({ code }) => transient.has(code ?? ""),
  isUnavailable: ({ code }) => /^(08|53|57P)/.test(code ?? ""),
  describe: ({ code = "none", routine = "unknown" }) => ({
    code,
    message: `PostgreSQL refused a statement: SQLSTATE ${code}, routine ${routine}`,
  }),
});

/** Class 23: integrity constraint violation. */
function violation(
  { code, table: named, column, constraint, detail: text = "" }: DatabaseError,
  ofQuery: string | undefined,
): string {
  const table = named ?? ofQuery;
  const rule = constraint === undefined ? "" : ` (constraint "${constraint}")`;
  const place = table === undefined ? "A table" : `Table ${table}`;
  switch (code) {
    case "23502":
      return violations.required(place, column ?? "");
    case "23505": {
      const [, columns] = /^Key \((.+?)\)=\(/s.exec(text) ?? [];
      return violations.unique(place, columns === undefined ? rule : ` (${unquoted(columns)})`);
    }
    default:
      return violations.other(place, rule);
  }
}

/** PostgreSQL's message for a key that another table lacks or still refers to. */
const detail = /^Key \((.+)\)=\((.*)\) is (not present in|still referenced from) table "(.+)"\.$/s;

function ofForeignKey({ table = "", constraint, detail: text = "" }: DatabaseError): Refused {
  const [, columns = "", value, what, other = ""] = detail.exec(text) ?? [];
  if (what === undefined) {
    // A message in another language, or columns that the engine's user may not read.
    const named = ` (constraint "${constraint}")`;
    return ["constraint_violation", violations.reference(`Table ${table}`, named)];
  }
  const missingIn = what === "not present in" ? other : undefined;
  const names = unquoted(columns).split(", ");
  return brokenKey({ table, missingIn, columns: names, value, constraint });
}

function unquoted(columns: string): string {
  return columns.replace(/"((?:[^"]|"")*)"/g, (_, name: string) => name.replaceAll('""', '"'));
}
