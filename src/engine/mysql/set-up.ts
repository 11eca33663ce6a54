/** What a connection has found out about its server. */
export interface ServerTraits {
  readonly isMariaDb: boolean;
  /** The collation that compares and orders text by its bytes, trailing spaces included. */
  readonly collation: string;
  /** True if the server writes all names of databases and tables in lower case. */
  readonly foldsNames: boolean;
  /** How many bytes the server takes at a time. */
  readonly largestPacket: number;
}

/** Collations by bytes that pad nothing: of MariaDB 10.2, and of MySQL 8.0.17. */
const collations = ["utf8mb4_nopad_bin", "utf8mb4_0900_bin"];

/** The words that ask a server for its traits. */
export const traitsQuestion = `select @@version, @@lower_case_table_names, @@max_allowed_packet,
  (select collation_name from information_schema.collations
    where collation_name in (${collations.map((name) => `'${name}'`).join(", ")}) limit 1)`;

/** Reads the answer. @throws Error for a server that is too old */
export function readTraits(row: readonly unknown[]): ServerTraits {
  const [version, folding, packet, collation] = row.map(String);
  const known = collations.find((name) => name === collation);
  if (known === undefined) {
    throw new Error(
      `it is ${version}, which has no collation by bytes; MySQL 8.0.17 and MariaDB 10.2 have`,
    );
  }
  return {
    isMariaDb: /mariadb/i.test(version ?? ""),
    collation: known,
    foldsNames: folding === "1",
    largestPacket: Number(packet),
  };
}

/**
 * Nothing is cut, rounded or made up: what does not fit is an error. Zero is a number as any other,
 * and no date.
 */
const sqlMode = [
  "STRICT_ALL_TABLES",
  "NO_ZERO_DATE",
  "NO_ZERO_IN_DATE",
  "ERROR_FOR_DIVISION_BY_ZERO",
  "NO_ENGINE_SUBSTITUTION",
  "NO_AUTO_VALUE_ON_ZERO",
];

/** A server that hears nothing of us for so long gives the connection up, in seconds. */
const IDLE_LIMIT_S = 60;

/**
 * The setting that ends a statement after so many milliseconds; 0: never. MySQL itself limits reads
 * alone, so writes are ended by the engine.
 */
export function timeLimitSetting({ isMariaDb }: ServerTraits, timeLimit: number): string {
  return isMariaDb
    ? `max_statement_time = ${timeLimit / 1000}`
    : `max_execution_time = ${timeLimit}`;
}

/** The words that are said to each new connection, whatever the server's own settings are. */
export function settings({ collation }: ServerTraits): string[] {
  const variables = [
    `sql_mode = '${sqlMode.join(",")}'`,
    "time_zone = '+00:00'",
    "lc_messages = 'en_US'",
    "autocommit = 1",
    "foreign_key_checks = 1",
    "unique_checks = 1",
    "sql_auto_is_null = 0",
    "sql_safe_updates = 0",
    "sql_big_selects = 1",
    "sql_select_limit = 18446744073709551615",
    "sql_notes = 1",
    `wait_timeout = ${IDLE_LIMIT_S}`,
  ];
  return [
    `set names utf8mb4 collate ${collation}`,
    `set ${variables.map((variable) => `session ${variable}`).join(", ")}`,
    "set session transaction isolation level read committed",
  ];
}
