import { DatabaseError } from "pg";
import type { Origin } from "../remote/dialect.ts";
import {
  createFailures,
  failed,
  type Refused,
  refused,
  safeWords,
  worded,
} from "../remote/failures.ts";
import { brokenKey, elsewhere, tableNamed, violated, violations } from "../sql/answers.ts";
import { PasswordMissing } from "./address.ts";

/**
 * In the context of an error, whose language is the server's: the value whose text the server could
 * not read. Contexts that quote a statement have a colon or quotes before its parameters.
 */
export const ofParameter = /^[\p{L}\p{M}, ]*\$(\d+)/mu;

/**
 * Such a context, in any language, is that of a function or of a statement in one. Others are only
 * words, or the parameters of the statement that was sent.
 */
const quotesCode = /^[^$]*["«»„“”(](?!.?\$)/;

/** By SQLSTATE, or by its first two characters for a whole class. */
const refusals: ReadonlyMap<string, Refused> = new Map<string, Refused>([
  ["08", refused.foreignServer],
  // PostgreSQL itself and poolers use this one.
  ["08P01", refused.unavailable],
  ["22001", refused.tooLong],
  ["22003", refused.outOfRange],
  ["22012", refused.dividedByZero],
  ["22P05", refused.notEncoded],
  ["2200H", refused.lastNumber],
  ["25006", refused.readOnly],
  ["25P04", refused.queryTimedOut],
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
  ["53", refused.exhausted],
  ["53100", refused.storage],
  ["53300", refused.unavailable],
  ["54", refused.tooComplex],
  ["55006", refused.inUse],
  ["55P03", refused.inUse],
  ["57", refused.unavailable],
  ["57014", refused.queryTimedOut],
  ["58030", refused.storage],
]);

/** By the same, for errors that a trigger or function raises on purpose. */
const raisable: ReadonlyMap<string, Refused> = new Map<string, Refused>([
  ["08", refused.raisedOutage],
  ["22", refused.raisedValue],
  ["40", refused.inUse],
  ["42501", refused.raisedDenial],
  ["53", refused.raisedOutage],
  ["57P", refused.raisedOutage],
  ["58", ["statement_failed", "A trigger or function of the database has failed"]],
  ["XX", ["statement_failed", "A trigger or function of the database has failed"]],
]);

/** By the server's own function, where several errors share an SQLSTATE. */
const byRoutine: ReadonlyMap<string, Refused> = new Map<string, Refused>([
  [
    "ExecOnConflictUpdate",
    ["invalid_value", "Two rows of the Upsert have keys that are equal in the database"],
  ],
  ["ExecWithCheckOptions 42501", refused.byRowSecurity],
  // A standby refuses to begin a transaction that may change data.
  ["call_bool_check_hook 0A000", refused.readOnly],
  ["call_enum_check_hook 0A000", refused.readOnly],
  ["error_view_not_updatable", refused.ofView],
  ["rewriteTargetView", refused.ofView],
]);

/** Of a failed statement, by the server's own function or by SQLSTATE. */
const reasons: ReadonlyMap<string, string> = new Map([
  ["CheckCmdReplicaIdentity", "its changes are published, but it has no replica identity"],
  ["ExecOpenScanRelation", "the materialized view must be refreshed first"],
  ["42P01", "a table that it uses does not exist"],
  ["42703", "a column that it uses does not exist"],
  ["42883", "a function or operator that it uses does not exist"],
]);

/** The transaction lost against another one and is retried. */
const transient = new Set(["40001", "40P01"]);

/** PostgreSQL, appendix A, "Error Codes". */
export const failures = createFailures<DatabaseError>({
  isAnswer: (error) => error instanceof DatabaseError,
  isObstacle: (error) => error instanceof PasswordMissing,
  read(error, origin) {
    const { code = "", where = "", routine = "", message: text } = error;
    if (code === "54000" && routine === "rpad") return refused.textTooLong;
    const words = safeWords(text, origin);
    if (isRaised(error)) return worded(find(raisable, code) ?? refused.byTrigger, words);
    if (code === "23503") return ofForeignKey(error, origin);
    if (code.startsWith("23")) return violation(error, origin);
    if (code.startsWith("42") && where.startsWith("remote SQL command")) {
      return failed(origin, undefined, "the foreign server refuses what it is asked for this");
    }
    const [, name] = / function "?(?:[^"\s(]+\.)?([^"\s(.]+)/.exec(where) ?? [];
    if (name !== undefined || (quotesCode.test(where) && !ofParameter.test(where))) {
      if (code === "22001") return refused.tooLongInside;
      if (code === "22003") return refused.outOfRangeInside;
      if (/^(21|42(?!501))/.test(code))
        return failed(origin, inFunction(name, reasons.get(code) ?? words));
    }
    // Of a value that was sent, such as the name of a table for a column of type `regclass`.
    if (/^(3F|42)/.test(code) && ofParameter.test(where)) return worded(refused.unfit, words);
    if (code === "25006" && origin?.isReading) {
      return failed(
        origin,
        undefined,
        "a Select may not change data, but a function that it uses does",
      );
    }
    const known =
      byRoutine.get(routine) ?? byRoutine.get(`${routine} ${code}`) ?? find(refusals, code);
    if (known !== undefined) return known;
    if (code.startsWith("22")) return worded(refused.unfit, words);
    const reason = reasons.get(routine);
    return failed(origin, reason === undefined ? inFunction(name, words) : undefined, reason);
  },
  concernsStatement: (error) =>
    isRaised(error) ? !transient.has(error.code ?? "") : !/^(08|40|53|57)/.test(error.code ?? ""),
  isTransient: ({ code }) => transient.has(code ?? ""),
  isUnavailable: ({ code, message }) =>
    /^(08|53|57P)/.test(code ?? "") && !message.includes("statement pooling mode"),
  describe: ({ code = "none", routine = "unknown", file }) => ({
    code,
    reason: `PostgreSQL refused a statement: SQLSTATE ${code}, routine ${routine}`,
    file,
  }),
});

/** By PL/pgSQL's `raise` or `assert`, which choose the SQLSTATE. */
function isRaised({ routine }: DatabaseError): boolean {
  return routine === "exec_stmt_raise" || routine === "exec_stmt_assert";
}

function inFunction(name: string | undefined, words: string | undefined): string | undefined {
  if (name === undefined) return words;
  return `function ${name} fails${words === undefined ? "" : `: ${words}`}`;
}

/** The refusal for the longest beginning of an SQLSTATE. */
function find(known: ReadonlyMap<string, Refused>, code: string): Refused | undefined {
  return known.get(code) ?? known.get(code.slice(0, 3)) ?? known.get(code.slice(0, 2));
}

/** Class 23: integrity constraint violation. */
function violation(error: DatabaseError, origin: Origin | undefined): Refused {
  const { code, table = origin?.tables[0], column, constraint, detail: text = "" } = error;
  const isHidden = isElsewhere(error, origin);
  const rule = constraint === undefined || isHidden ? "" : ` (constraint "${constraint}")`;
  const place = isHidden ? elsewhere : tableNamed(table);
  switch (code) {
    case "23502":
      return isHidden
        ? violated(`${place} does not allow this row`, { kind: "not_null" })
        : violations.required(place, column ?? "", { table });
    case "23505": {
      const [, columns] = isHidden ? [] : (/\((.+?)\)=\(/s.exec(text) ?? []);
      const names = columns === undefined ? undefined : unquoted(columns).split(", ");
      const found = {
        name: constraint,
        table,
        // Of an index on expressions, none is a column.
        columns: names?.some((name) => /[()]/.test(name)) ? undefined : names,
      };
      return violations.unique(
        place,
        columns === undefined ? rule : ` (${unquoted(columns)})`,
        isHidden ? {} : found,
      );
    }
    case "23514":
      return violations.check(place, rule, isHidden ? {} : { name: constraint, table });
    default:
      return violations.other(place, rule);
  }
}

/** True for a table of another schema, which the caller may not see. */
function isElsewhere({ schema }: DatabaseError, origin: Origin | undefined): boolean {
  return schema !== undefined && origin !== undefined && schema !== origin.schema;
}

/** PostgreSQL's message for a key that another table lacks or still refers to. */
const detail = /^Key \((.+?)\)=\((.*)\) is (not present in|still referenced from) table "(.+)"\.$/s;

function ofForeignKey(error: DatabaseError, origin: Origin | undefined): Refused {
  const { table = "", constraint, detail: text = "" } = error;
  if (isElsewhere(error, origin)) return violations.reference(elsewhere, "");
  const [, columns = "", value, what, other = ""] = detail.exec(text) ?? [];
  if (what === undefined) {
    // A message in another language, or columns that the engine's user may not read.
    const found = { name: constraint, table };
    return violations.reference(`Table ${table}`, ` (constraint "${constraint}")`, found);
  }
  const missingIn = what === "not present in" ? other : undefined;
  return brokenKey({ table, missingIn, columns: unquoted(columns).split(", "), value, constraint });
}

function unquoted(columns: string): string {
  return columns.replace(/"((?:[^"]|"")*)"/g, (_, name: string) => name.replaceAll('""', '"'));
}
