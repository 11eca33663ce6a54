import { RowTooLong } from "../refusal.ts";
import { ConnectionLost, type Origin } from "../remote/dialect.ts";
import {
  createFailures,
  failed,
  nameless,
  type Refused,
  refused,
  safeWords,
  worded,
} from "../remote/failures.ts";
import { brokenKey, elsewhere, tableNamed, violated, violations } from "../sql/answers.ts";

/** By error number of MySQL or MariaDB. */
const refusals: ReadonlyMap<number, Refused> = new Map<number, Refused>([
  ...numbers(refused.unfit, 1292, 1366, 1411, 1525, 1267, 1270, 1271, 3140, 3141, 3988, 4078, 4079),
  ...numbers(refused.tooLong, 1406),
  ...numbers(refused.outOfRange, 1264, 1690, 1916),
  ...numbers(refused.dividedByZero, 1365),
  ...numbers(refused.computed, 1906, 3105),
  ...numbers(refused.lastNumber, 1467),
  ...numbers(refused.tooComplex, 1038, 1074, 1104, 1117, 1118, 1153, 1301, 1390, 1436, 1463, 3170),
  ...numbers(refused.inUse, 1020, 1205, 1206, 1213, 1412, 1461, 1615),
  ...numbers(refused.storage, 1021, 1026, 1114),
  ...numbers(refused.readOnly, 1036, 1290, 1792, 1836),
  ...numbers(refused.depended, 1217, 3730),
  ...numbers(refused.byView, 1369),
  ...numbers(refused.ofView, 1288, 1348, 1393, 1394, 1395, 1471),
  ...numbers(refused.forbidden, 1044, 1142, 1143, 1227, 1370, 1419),
  ...numbers(refused.noDatabase, 1008, 1049),
  ...numbers(refused.noTable, 1051, 1146),
  ...numbers(refused.noColumn, 1054),
  ...numbers(refused.twoColumns, 1060),
  ...numbers(refused.notForKeys, 1071, 1170, 3152),
  ...numbers(refused.databaseExists, 1007),
  ...numbers(refused.tableExists, 1050),
  ...numbers(refused.queryTimedOut, 1317, 1969, 3024),
  ...numbers(["invalid_name", "A column cannot have this name"], 1059, 1166, 1300),
  ...numbers(["invalid_type", "A number's length or precision is out of range"], 1425, 1426, 1427),
  ...numbers(["invalid_value", "A column does not accept its default"], 1067),
  ...numbers(
    ["invalid_type", "A column must have the type and length of the column that it refers to"],
    1005,
    1215,
    3780,
  ),
  ...numbers(nameless("The database requires a primary key in each table"), 3750),
]);

/** The server is stopping, starting or full, or no longer accepts this user. */
const unavailable = new Set([
  1040, 1041, 1043, 1045, 1047, 1053, 1077, 1079, 1129, 1130, 1152, 1158, 1159, 1160, 1161, 1203,
  1226, 1698, 1927, 3118, 4031,
]);

/** Waiting does not help with these. */
const refusesUser = new Set([1045, 1130, 1698, 3118]);

/** The transaction lost against another one or a definition, and is retried. */
const transient = new Set([1020, 1205, 1213, 1412, 1615]);

const timeouts = new Set([1317, 1969, 3024]);

export const failures = createFailures<ServerError>({
  isAnswer: (error) => error instanceof ServerError,
  read(error, origin) {
    const { number, state, text } = error;
    const words = safeWords(text, origin);
    if (isRaised(error)) return worded(refused.byTrigger, words);
    if (isFileError(error)) return refused.storage;
    if (unavailable.has(number)) return refused.unavailable;
    if (reasons.has(number)) return failed(origin, undefined, reasons.get(number));
    const broken = brokenObject(error, origin);
    if (broken !== undefined) return failed(origin, broken);
    const known = translateViolation(error, origin) ?? refusals.get(number);
    if (known !== undefined) return known;
    if (state.startsWith("22")) return worded(refused.unfit, words);
    if (state.startsWith("23")) return violations.other(tableNamed(origin?.tables[0]), "");
    return state.startsWith("40") ? refused.inUse : failed(origin, words);
  },
  concernsStatement: (error) => {
    const { number } = error;
    return (
      isRaised(error) ||
      !(
        isFileError(error) ||
        unavailable.has(number) ||
        transient.has(number) ||
        timeouts.has(number)
      )
    );
  },
  isTransient: (error) => transient.has(error.number) && !isRaised(error),
  isUnavailable: ({ number }) => unavailable.has(number) && !refusesUser.has(number),
  describe: ({ number, state }) => ({
    code: String(number),
    reason: `MySQL refused a statement: error ${number}, SQLSTATE ${state}`,
  }),
});

/** By `signal` in a trigger or function, with a number of its own or without one. */
function isRaised({ number, state }: ServerError): boolean {
  return number === 1643 || number === 1644 || state.startsWith("45");
}

/** Of a failed statement, in words that name nothing. */
const reasons: ReadonlyMap<number, string> = new Map([
  [1172, "a subquery of a view, trigger or function finds several rows"],
  [1242, "a subquery of a view, trigger or function finds several rows"],
  [1442, "a trigger or function changes a table that the query uses itself"],
  [1449, "the account that defines a view, trigger or function no longer exists"],
]);

/** Says that a view, trigger or function lacks something. The server names accounts and other databases. */
function brokenObject({ number, text }: ServerError, origin: Origin | undefined) {
  const [, schema, name] = /(?:['`]|(?:FUNCTION|PROCEDURE) )([^'`.]+)\.([^'` ]+)/.exec(text) ?? [];
  const isNear = name !== undefined && schema === origin?.schema;
  const named = isNear ? `${name} ` : "";
  switch (number) {
    case 1146:
      if (origin === undefined || (isNear && origin.tables.includes(name))) return undefined;
      return `table ${named}does not exist, but a view, trigger or function uses it`;
    case 1305:
      return `function ${named}does not exist, but a view, trigger or column uses it`;
    case 1356:
      return `view ${named}uses a table, column or function that does not exist, or its definer lacks a privilege`;
    default:
      return undefined;
  }
}

export function isDuplicate(error: unknown): error is ServerError {
  return error instanceof ServerError && (error.number === 1062 || error.number === 1586);
}

/** The unique key that already has the value. MySQL 8 puts its table in front, MariaDB does not. */
export function findDuplicateKey({ text }: ServerError): {
  key: string;
  table?: string | undefined;
} {
  const name = / for key '([^']+)'$/.exec(text)?.[1] ?? "";
  const dot = name.indexOf(".");
  return { key: name.slice(dot + 1), table: dot < 0 ? undefined : name.slice(0, dot) };
}

/** Takes only names from fixed places of the server's text, which also quotes values. */
function translateViolation(error: ServerError, origin: Origin | undefined): Refused | undefined {
  const { number, text } = error;
  const place = tableNamed(origin?.tables[0]);
  const ofQuery = { table: origin?.tables[0] };
  switch (number) {
    case 1048:
    case 1364:
      return violations.required(place, requiredColumn(error) ?? "", ofQuery);
    case 1062:
    case 1586: {
      const { key, table } = findDuplicateKey(error);
      const isOwn = table === undefined || origin?.tables.includes(table);
      const found = isOwn ? { name: key, table: table ?? ofQuery.table } : {};
      return violations.unique(isOwn ? place : elsewhere, ` (constraint "${key}")`, found);
    }
    case 1264:
      return unfitColumn(refused.outOfRange, text);
    case 1690:
      return /^DOUBLE value is out of range in 'exp\(\(?709 \+ /.test(text)
        ? refused.textTooLong
        : undefined;
    case 1406:
      return unfitColumn(refused.tooLong, text);
    case 1216:
    case 1451:
    case 1452:
      return foreignKeyViolation(number, text, origin);
    case 1526:
      return violated(`${place} has no partition for this row`);
    case 3819: {
      const [, rule] = /^\w+ \w+ '([^']+)'/.exec(text) ?? [];
      const named = rule === undefined ? "" : ` (constraint "${rule}")`;
      return violations.check(place, named, { ...ofQuery, name: rule });
    }
    case 4025: {
      const [, rule, schema, table] =
        /^CONSTRAINT `([^`]+)` failed for `([^`]+)`\.`([^`]+)`/.exec(text) ?? [];
      if (origin !== undefined && schema !== origin.schema) {
        return violations.check(elsewhere, "");
      }
      return violations.check(`Table ${table}`, ` (constraint "${rule}")`, { name: rule, table });
    }
    default:
      return undefined;
  }
}

export function requiredColumn({ number, text }: ServerError): string | undefined {
  return number === 1048 || number === 1364 ? /^\w+ '([^']+)'/.exec(text)?.[1] : undefined;
}

/**
 * Matches "(`main`.`cats`, CONSTRAINT `owned` FOREIGN KEY (`name`) REFERENCES `owners` (`name`))".
 */
const foreignKey =
  /\(`([^`]+)`\.`([^`]+)`, CONSTRAINT `([^`]+)` FOREIGN KEY \(([^)]+)\) REFERENCES (`[^(]+`) \(([^)]+)\)/;

function foreignKeyViolation(number: number, text: string, origin: Origin | undefined): Refused {
  const [, schema, table = "", constraint, own = "", other = "", key = ""] =
    foreignKey.exec(text) ?? [];
  if (schema === undefined) return violations.reference(tableNamed(origin?.tables[0]), "");
  // Databases other than the query's are named with a dot.
  if ((origin !== undefined && schema !== origin.schema) || other.includes(".")) {
    return violations.reference(elsewhere, "");
  }
  const isMissing = number === 1452;
  return brokenKey({
    table,
    missingIn: isMissing ? other.replaceAll("`", "") : undefined,
    columns: (isMissing ? own : key).replaceAll("`", "").split(", "),
    constraint,
  });
}

/** Where the server says that a value does not fit. MariaDB names database and table too. */
export function findUnfitPlace({ text }: ServerError) {
  const [, schema, table, column, row] =
    / for column (?:`([^`]+)`\.`([^`]+)`\.)?[`']([^`']+)[`'] at row (\d+)$/.exec(text) ?? [];
  return { schema, table, column, row: Number(row) };
}

/** A trigger may have written the column, so its name is only for who may see the whole schema. */
function unfitColumn([code, plain]: Refused, text: string): Refused {
  const column = / for column '([^']+)' at row \d+$/.exec(text)?.[1];
  return column === undefined ? [code, plain] : [code, `${plain}: "${column}"`, { plain }];
}

function numbers(refusal: Refused, ...all: number[]): [number, Refused][] {
  return all.map((number) => [number, refusal]);
}

export class ServerError extends Error {
  readonly number: number;
  /** SQLSTATE. */
  readonly state: string;
  /** The server's text, which quotes values. */
  readonly text: string;
  /** Of an Insert, the index of the row that the server blames. */
  row: number | undefined;

  constructor(number: number, state: string, text: string, cause: Error) {
    super(`The server refused a statement: ${number}`, { cause });
    this.name = "ServerError";
    this.number = number;
    this.state = state;
    this.text = text;
  }
}

/** These concern the server's files, such as a temporary table that it cannot write. */
const LAST_FILE_ERROR = 119;

function isFileError({ number, state }: ServerError): boolean {
  return number <= LAST_FILE_ERROR && state === "HY000";
}

export function readError(error: unknown): ServerError | ConnectionLost | RowTooLong {
  if (error instanceof RowTooLong) return error;
  if (!(error instanceof Error)) return new ConnectionLost(error);
  // System errors have an `errno` too, but no `sqlState`.
  const state = "sqlState" in error ? error.sqlState : undefined;
  const number = "errno" in error && state !== undefined ? error.errno : undefined;
  if (typeof number !== "number") return new ConnectionLost(error);
  return new ServerError(number, String(state), error.message, error);
}

export function resultOf<Result>(
  ask: (done: (error: Error | null, result: Result) => void) => unknown,
): Promise<Result> {
  return new Promise((resolve, reject) => {
    try {
      ask((error, result) => (error ? reject(readError(error)) : resolve(result)));
    } catch (error) {
      reject(readError(error));
    }
  });
}
