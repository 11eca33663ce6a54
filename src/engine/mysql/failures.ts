import { RowTooLong } from "../refusal.ts";
import { ConnectionLost } from "../remote/dialect.ts";
import { failuresOf, type Refused, refused } from "../remote/failures.ts";
import { brokenKey, violations } from "../sql/answers.ts";

/** By error number of MySQL or MariaDB. */
const refusals: ReadonlyMap<number, Refused> = new Map<number, Refused>([
  ...numbers(refused.unfit, 1292, 1366, 1411, 1525, 1267, 1270, 1271, 3140, 3141, 3988, 4078),
  ...numbers(refused.tooLong, 1406),
  ...numbers(refused.outOfRange, 1264, 1690, 1916),
  ...numbers(refused.computed, 1906, 3105),
  ...numbers(refused.lastNumber, 1467),
  ...numbers(refused.tooComplex, 1038, 1074, 1104, 1117, 1118, 1153, 1301, 1390, 1436, 1463, 3170),
  ...numbers(refused.inUse, 1020, 1205, 1206, 1213, 1412, 1461, 1615),
  ...numbers(refused.storage, 1021, 1026, 1114),
  ...numbers(refused.readOnly, 1036, 1290, 1792, 1836),
  ...numbers(refused.depended, 1217, 3730),
  ...numbers(refused.byTrigger, 1644),
  ...numbers(refused.byView, 1369),
  ...numbers(refused.ofView, 1288, 1348, 1393, 1394, 1395, 1471),
  ...numbers(refused.forbidden, 1044, 1142, 1143, 1227, 1370, 1419),
  ...numbers(refused.noDatabase, 1008, 1049),
  ...numbers(refused.noTable, 1051, 1146, 1356),
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
    ...[1005, 1215, 3780],
  ),
  ...numbers(["constraint_violation", "The database requires a primary key in each table"], 3750),
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

export const failures = failuresOf<ServerError>({
  isAnswer: (error) => error instanceof ServerError,
  read(error, table) {
    if (isFileError(error)) return refused.storage;
    if (unavailable.has(error.number)) return refused.unavailable;
    return violationOf(error, table) ?? refusals.get(error.number);
  },
  concernsStatement: (error) => {
    const { number } = error;
    return !(
      isFileError(error) ||
      unavailable.has(number) ||
      transient.has(number) ||
      timeouts.has(number)
    );
  },
  isTransient: ({ number }) => transient.has(number),
  isUnavailable: ({ number }) => unavailable.has(number) && !refusesUser.has(number),
  describe: ({ number }) => ({
    code: String(number),
    message: `MySQL refused a statement: error ${number}`,
  }),
});

export function isDuplicate(error: unknown): error is ServerError {
  return error instanceof ServerError && (error.number === 1062 || error.number === 1586);
}

/** The name of the unique key that the table already holds. MySQL 8 puts the table's name before it. */
export function duplicateKeyOf(error: unknown, table: string): string | undefined {
  if (!isDuplicate(error)) return undefined;
  const name = / for key '([^']+)'$/.exec(error.text)?.[1];
  return name?.startsWith(`${table}.`) ? name.slice(table.length + 1) : name;
}

/** Takes only names from fixed places of the server's text, which also quotes values. */
function violationOf(
  { number, text }: ServerError,
  table: string | undefined,
): Refused | undefined {
  const place = table === undefined ? "A table" : `Table ${table}`;
  switch (number) {
    case 1048:
    case 1364:
      return violated(violations.required(place, /^\w+ '([^']+)'/.exec(text)?.[1] ?? ""));
    case 1062:
    case 1586:
      return violated(violations.unique(place, named(/ for key '([^']+)'$/.exec(text))));
    case 1264:
      return unfit(refused.outOfRange, text);
    case 1690:
      return /^DOUBLE value is out of range in 'exp\(\(?709 \+ /.test(text)
        ? refused.textTooLong
        : undefined;
    case 1406:
      return unfit(refused.tooLong, text);
    case 1216:
    case 1451:
    case 1452:
      return foreignKeyViolation(number, text, place);
    case 3819:
      return violated(violations.other(place, named(/^\w+ \w+ '([^']+)'/.exec(text))));
    case 4025:
      return violated(violations.other(place, named(/^CONSTRAINT `([^`]+)`/.exec(text))));
    default:
      return undefined;
  }
}

/**
 * Matches "(`main`.`cats`, CONSTRAINT `owned` FOREIGN KEY (`name`) REFERENCES `owners` (`name`))".
 */
const foreignKey =
  /\(`[^`]+`\.`([^`]+)`, CONSTRAINT `([^`]+)` FOREIGN KEY \(([^)]+)\) REFERENCES (`[^(]+`) \(([^)]+)\)/;

function foreignKeyViolation(number: number, text: string, place: string): Refused {
  const [, table, constraint, own = "", other = "", key = ""] = foreignKey.exec(text) ?? [];
  if (table === undefined) return violated(violations.reference(place, ""));
  const isMissing = number === 1452;
  return brokenKey({
    table,
    missingIn: isMissing ? other.replaceAll("`", "") : undefined,
    columns: (isMissing ? own : key).replaceAll("`", "").split(", "),
    constraint,
  });
}

/** A trigger may have written the column, so its name is only for who may see the whole schema. */
function unfit([code, plain]: Refused, text: string): Refused {
  const column = / for column '([^']+)' at row \d+$/.exec(text)?.[1];
  return column === undefined ? [code, plain] : [code, `${plain}: "${column}"`, { plain }];
}

function violated(message: string): Refused {
  return ["constraint_violation", message];
}

function named(found: RegExpExecArray | null): string {
  return found === null ? "" : ` (constraint "${found[1]}")`;
}

function numbers(refusal: Refused, ...all: number[]): [number, Refused][] {
  return all.map((number) => [number, refusal]);
}

export class ServerError extends Error {
  readonly number: number;
  /** The server's text, which quotes values. */
  readonly text: string;

  constructor(number: number, text: string, cause: Error) {
    super(`The server refused a statement: ${number}`, { cause });
    this.name = "ServerError";
    this.number = number;
    this.text = text;
  }
}

/** Lower numbers concern the server's files, such as a temporary table that it cannot write. */
const FIRST_NUMBER = 1000;

function isFileError({ number }: ServerError): boolean {
  return number < FIRST_NUMBER;
}

export function readError(error: unknown): ServerError | ConnectionLost | RowTooLong {
  if (error instanceof RowTooLong) return error;
  if (!(error instanceof Error)) return new ConnectionLost(error);
  // System errors have an `errno` too, but no `sqlState`.
  const number = "errno" in error && "sqlState" in error ? error.errno : undefined;
  if (typeof number !== "number") return new ConnectionLost(error);
  return new ServerError(number, error.message, error);
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
