import { MysqlQueryCompiler } from "kysely";
import { LRUCache } from "lru-cache";
import type {
  Connection,
  ExecuteValues,
  FieldPacket,
  ResultSetHeader,
  RowDataPacket,
  TypedParameterValue,
} from "mysql2";
import { EngineRefusal, UnknownOutcome } from "../refusal.ts";
import { ConnectionLost, type QueryContext, type Session } from "../remote/dialect.ts";
import { refused } from "../remote/failures.ts";
import type { RowOutput } from "../spool.ts";
import { compileForServer, type Fragment, tooComplex } from "../sql/fragment.ts";
import type { ServerAddress } from "./address.ts";
import { readError, resultOf } from "./failures.ts";
import { type RawRow, rowParser } from "./rows.ts";

interface ServerTraits {
  readonly isMariaDb: boolean;
  /** The variable with the access that transactions have unless they say otherwise. */
  readonly accessVariable: string;
  /** By bytes, including trailing spaces. */
  readonly collation: string;
  /** True if the server stores names of databases and tables in lower case. */
  readonly foldsNames: boolean;
  readonly maxPacketBytes: number;
}

/** By bytes, without padding. */
export const collations: readonly string[] = ["utf8mb4_nopad_bin", "utf8mb4_0900_bin"];

export const traitsQuery = `select @@version, @@lower_case_table_names, @@max_allowed_packet,
  (select collation_name from information_schema.collations
    where collation_name in (${collations.map((name) => `'${name}'`).join(", ")}) limit 1)`;

/** MySQL 8.0.28 loses conditions of Selects in `from`, and parameters in `values`. */
const OLDEST_MYSQL = "8.0.36";

/** @throws Error for a server that is too old */
export function readTraits(row: readonly unknown[]): ServerTraits {
  const [version = "", folding, packet, collation] = row.map(String);
  const known = collations.find((name) => name === collation);
  const isMariaDb = /mariadb/i.test(version);
  const isOld = version.localeCompare(OLDEST_MYSQL, "en", { numeric: true }) < 0;
  if (known === undefined || (isOld && !isMariaDb)) {
    throw new Error(
      `version ${version} returns wrong rows; use MySQL ${OLDEST_MYSQL}, MariaDB 10.11 or later`,
    );
  }
  return {
    isMariaDb,
    // MySQL 8 has removed the older name, and MariaDB has the other one since 11.1.
    accessVariable:
      isMariaDb && Number.parseFloat(version) < 11.1 ? "tx_read_only" : "transaction_read_only",
    collation: known,
    foldsNames: folding === "1",
    maxPacketBytes: Number(packet),
  };
}

/**
 * A value that does not fit is an error. Zero is a number like any other. Dates with zeros stay as
 * they are: with `NO_ZERO_IN_DATE`, the server would turn them into 0000-00-00 in temporary tables.
 */
const sqlMode = [
  "STRICT_ALL_TABLES",
  "ERROR_FOR_DIVISION_BY_ZERO",
  "NO_ENGINE_SUBSTITUTION",
  "NO_AUTO_VALUE_ON_ZERO",
];

/** The server closes idle connections. */
const IDLE_TIMEOUT_S = 60;

/** Noted per connection. */
const MAX_TABLES = 1000;

export type Isolation = "read committed" | "repeatable read" | "serializable";

const usualIsolation: Isolation = "read committed";

/** The longest key of an index, so that the server sorts alike with and without one. */
export const SORTED_BYTES = 3072;

/** The cache of subqueries takes texts for equal that the collation of the outer column does. */
const ofMariaDb = ["check_constraint_checks = 1", "optimizer_switch = 'subquery_cache=off'"];

export function settings({ collation, isMariaDb }: ServerTraits): string[] {
  const variables = [
    `sql_mode = '${sqlMode.join(",")}'`,
    "time_zone = '+00:00'",
    "lc_messages = 'en_US'",
    "autocommit = 0",
    "foreign_key_checks = 1",
    "unique_checks = 1",
    "sql_auto_is_null = 0",
    "sql_safe_updates = 0",
    "sql_big_selects = 1",
    "sql_select_limit = 18446744073709551615",
    "sql_notes = 1",
    "sql_quote_show_create = 1",
    "completion_type = 'NO_CHAIN'",
    `max_sort_length = cast(greatest(@@max_sort_length, ${SORTED_BYTES}) as unsigned)`,
    ...(isMariaDb ? ofMariaDb : []),
    `wait_timeout = ${IDLE_TIMEOUT_S}`,
  ];
  return [
    `set names utf8mb4 collate ${collation}`,
    `set ${variables.map((variable) => `session ${variable}`).join(", ")}`,
    `set session transaction isolation level ${usualIsolation}`,
  ];
}

/** Warnings about changed values that strict mode does not turn into errors. */
const silentChanges = new Set([1264, 1265, 1292, 1366, 1406]);

/**
 * Methods throw `ServerError` or `ConnectionLost`. Statements with values are prepared: nothing is
 * escaped, and no server setting changes the meaning of a value.
 */
export class MysqlSession implements Session {
  readonly server: ServerTraits;
  /** The same for all sessions of an engine. */
  readonly address: ServerAddress;
  readonly #connection: Connection;
  #timeLimit: number | undefined;
  #isolation: Isolation | undefined = usualIsolation;
  #onlyReads = false;
  /** True while transactions can change nothing unless they say otherwise. */
  #isRestricted = false;

  isUntouched = true;
  /** True once a view was read, which may contain Selects. */
  readsViews = false;
  readonly #tables = new LRUCache<string, object>({ max: MAX_TABLES });
  #alterations = 0;

  constructor(connection: Connection, server: ServerTraits, address: ServerAddress) {
    this.#connection = connection;
    this.server = server;
    this.address = address;
  }

  /**
   * Prepares all statements again once a table has another description, since MySQL would go on
   * converting their values to the types that the columns had before.
   */
  noteTable(name: string, table: object): void {
    const known = this.#tables.get(name);
    if (known === table) return;
    if (known !== undefined || this.#tables.size >= MAX_TABLES) this.#alterations += 1;
    this.#tables.set(name, table);
  }

  async rows(fragment: Fragment): Promise<RawRow[]> {
    const { sql, values } = this.#compile(fragment);
    const found = await this.#ask<RowDataPacket[][]>((done) =>
      this.#connection.execute(sql, values, done),
    );
    // With rows, the driver does not report warnings.
    if (sql.startsWith("insert ")) await this.#requireUnchanged();
    return found;
  }

  async run(fragment: Fragment): Promise<number> {
    const { sql, values } = this.#compile(fragment);
    const result = await this.#ask<ResultSetHeader>((done) =>
      this.#connection.execute(sql, values, done),
    );
    if (result.warningStatus > 0) await this.#requireUnchanged();
    return result.affectedRows;
  }

  /** Without `words`, the transaction begins with its first statement. */
  async begin(words: string | undefined, onlyReads: boolean): Promise<void> {
    this.#onlyReads = onlyReads;
    if (onlyReads !== this.#isRestricted && !(onlyReads && words !== undefined)) {
      // By default, a server may allow no changes.
      const { accessVariable } = this.server;
      await this.command(`set session ${accessVariable} = ${onlyReads ? "on" : "default"}`);
      this.#isRestricted = onlyReads;
    }
    if (words !== undefined) await this.command(`start transaction ${words}`);
  }

  /** The answer does not wait for the end of a transaction that can change nothing. */
  async end(words: "commit" | "rollback"): Promise<void> {
    const ended = this.command(words);
    if (this.#onlyReads) ended.catch(() => {});
    else await ended;
  }

  /** Runs the engine's own SQL, without values. */
  async command(sql: string): Promise<void> {
    await this.#ask((done) => this.#connection.query(sql, done));
  }

  /** Runs a statement without values, unprepared. */
  show(fragment: Fragment): Promise<RawRow[]> {
    const { sql } = this.#compile(fragment);
    return this.#ask<RowDataPacket[][]>((done) => this.#connection.query(sql, done));
  }

  /** In milliseconds, 0 for none. MySQL limits only reads, so the engine itself ends writes. */
  async limitTime(timeLimit: number): Promise<void> {
    if (this.#timeLimit === timeLimit) return;
    this.#timeLimit = undefined;
    const setting = this.server.isMariaDb
      ? `max_statement_time = ${timeLimit / 1000}`
      : `max_execution_time = ${timeLimit}`;
    await this.command(`set session ${setting}`);
    this.#timeLimit = timeLimit;
  }

  /** The level of the transactions that follow. */
  async isolate(level: Isolation): Promise<void> {
    if (this.#isolation === level) return;
    this.#isolation = undefined;
    await this.command(`set session transaction isolation level ${level}`);
    this.#isolation = level;
  }

  /**
   * Runs a definition, which commits by itself.
   *
   * @throws UnknownOutcome if the connection is lost
   */
  async define(fragment: Fragment): Promise<void> {
    const { sql } = this.#compile(fragment);
    try {
      await this.command(sql);
    } catch (error) {
      throw error instanceof ConnectionLost ? new UnknownOutcome(error) : error;
    }
  }

  /** Passes on rows as they arrive. The server waits while the output has a backlog. */
  async stream(fragment: Fragment, output: RowOutput, write: (row: RawRow) => void): Promise<void> {
    const { sql, values } = this.#compile(fragment);
    const connection = this.#connection;
    const { promise, resolve, reject } = Promise.withResolvers<void>();
    let failure: unknown;
    // A statement is not notified of a broken connection.
    connection.on("error", reject);
    try {
      const statement = connection.execute<RowDataPacket[][]>(sql, values);
      statement.on("error", reject).on("end", () => resolve());
      statement.on("fields", (fields: FieldPacket[]) => {
        const parser = rowParser(fields);
        if (parser !== undefined) Object.assign(statement, { buildParserFromFields: () => parser });
      });
      statement.on("result", (row) => {
        if (failure !== undefined || !Array.isArray(row)) return;
        try {
          write(row);
        } catch (error) {
          // An error thrown to the connection would close it.
          failure = error;
        }
        if (output.backlog === undefined) return;
        connection.pause();
        // Not in this turn of the event loop, even if the client has caught up already.
        void output.backlog.then(() => setImmediate(() => connection.resume()));
      });
      await promise;
      this.isUntouched = false;
    } catch (error) {
      throw readError(error);
    } finally {
      connection.off("error", reject);
    }
    if (failure !== undefined) throw failure;
  }

  #compile(fragment: Fragment): { readonly sql: string; readonly values: ExecuteValues[] } {
    const { maxPacketBytes } = this.server;
    const { sql: text, parameters } = compileForServer(compiler, fragment);
    // The driver knows prepared statements by their texts.
    const sql = this.#alterations === 0 ? text : `${text} /* ${this.#alterations} */`;
    const values = parameters.map(asBound);
    let length = sql.length + PACKET_MARGIN_BYTES;
    for (const value of values) {
      length += typeof value === "string" || Buffer.isBuffer(value) ? Buffer.byteLength(value) : 8;
    }
    if (length > maxPacketBytes && length > 2 * PACKET_MARGIN_BYTES) {
      throw tooComplex(`more than its max_allowed_packet of ${maxPacketBytes} bytes`);
    }
    // Executed again, MariaDB may not find columns of Selects in conditions, and whether a null is in
    // the values of one is answered as before.
    const hasSelects = sql.includes("(select ") && selectInCondition.test(sql);
    if (this.readsViews || hasSelects) this.#connection.unprepare(sql);
    return { sql, values };
  }

  async #ask<Result>(ask: Parameters<typeof resultOf<Result>>[0]): Promise<Result> {
    const result = await resultOf(ask);
    this.isUntouched = false;
    return result;
  }

  async #requireUnchanged(): Promise<void> {
    const warnings = await this.#ask<RowDataPacket[][]>((done) =>
      this.#connection.query("show warnings", done),
    );
    // Notes are about what the database computes itself, such as a default that it rounds.
    if (
      warnings.some(([level, code]) => String(level) !== "Note" && silentChanges.has(Number(code)))
    ) {
      throw new EngineRefusal(...refused.unfit);
    }
  }
}

export type MysqlContext = QueryContext<MysqlSession>;

/** For the statement and the lengths of its values. */
const PACKET_MARGIN_BYTES = 1024 * 1024;

export type Bound = string | number | Buffer | TypedParameterValue | null;

const selectInCondition = /\b(?:in|exists)\s+\(select /;

export const compiler = new MysqlQueryCompiler();

function asBound(value: unknown): Bound {
  if (value === null || Buffer.isBuffer(value) || isTyped(value)) return value;
  if (typeof value === "string" || typeof value === "number") return value;
  throw new TypeError(`A ${typeof value} cannot be bound to an SQL parameter`);
}

function isTyped(value: unknown): value is TypedParameterValue {
  return typeof value === "object" && value !== null && "unsigned" in value && "type" in value;
}
