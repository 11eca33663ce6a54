import {
  DummyDriver,
  Kysely,
  PostgresAdapter,
  PostgresIntrospector,
  PostgresQueryCompiler,
} from "kysely";
import { type Client, DatabaseError } from "pg";
import { EngineRefusal } from "../refusal.ts";
import { UnknownOutcome } from "../remote/failures.ts";
import { ConnectionLost, type Place, type Session } from "../remote/session.ts";
import type { RowOutput } from "../row-output.ts";
import type { Fragment } from "../sql/fragment.ts";
import type { RowBytes } from "./row-bytes.ts";
import { ConnectionTap, RowMessages, type Statement } from "./row-messages.ts";

/** A row, its values PostgreSQL's text, in the order of the columns. */
export type Row = readonly (string | null)[];

/** Leaves every value as the text that PostgreSQL wrote. */
const types = { getTypeParser: () => (text: string) => text };

/** Its methods throw PostgreSQL's `DatabaseError`, or `ConnectionLost`. */
export class PostgresSession implements Session {
  readonly #client: Client;
  #tap: ConnectionTap | undefined;

  constructor(client: Client) {
    this.#client = client;
  }

  /** Runs a fragment and returns all of its rows. */
  async rows(fragment: Fragment): Promise<Row[]> {
    const query = { ...compile(fragment), rowMode: "array" as const, types };
    const { rows } = await answered(this.#client.query<(string | null)[]>(query));
    return rows;
  }

  /** Runs a fragment and returns how many rows it changed. */
  async run(fragment: Fragment): Promise<number> {
    const { rowCount } = await answered(this.#client.query(compile(fragment)));
    return rowCount ?? 0;
  }

  /** Runs words of our own, which hold no values. */
  async command(words: string): Promise<void> {
    await answered(this.#client.query(words));
  }

  /**
   * Ends the transaction and runs a definition that PostgreSQL takes outside of one alone. @throws
   * EngineRefusal `database_unavailable` if nobody can say whether it was carried out
   */
  async define(fragment: Fragment): Promise<void> {
    await this.command("commit");
    try {
      await this.run(fragment);
    } catch (error) {
      throw error instanceof ConnectionLost ? new UnknownOutcome() : error;
    }
  }

  /** Writes a fragment's rows to an output as they come; the server waits while it has a backlog. */
  async stream(fragment: Fragment, rows: RowBytes, output: RowOutput): Promise<void> {
    this.#tap ??= new ConnectionTap(this.#client.connection);
    const messages = new RowMessages(this.#tap, compile(fragment), rows, output);
    await answered(this.#client.query(messages).done);
    if (messages.failure !== undefined) throw messages.failure;
  }
}

async function answered<Result>(result: Promise<Result>): Promise<Result> {
  try {
    return await result;
  } catch (error) {
    throw error instanceof DatabaseError ? error : new ConnectionLost(error);
  }
}

/** A schema of PostgreSQL as statements reach it. */
export type PostgresPlace = Place<PostgresSession>;

/** The protocol counts the parameters of a statement with 16 bits. */
const PARAMETER_LIMIT = 65_535;

/** Turns fragments into SQL; it runs nothing, for that is the driver's part. */
const builder = new Kysely<Record<string, never>>({
  dialect: {
    createAdapter: () => new PostgresAdapter(),
    createDriver: () => new DummyDriver(),
    createIntrospector: (database) => new PostgresIntrospector(database),
    createQueryCompiler: () => new PostgresQueryCompiler(),
  },
});

/** @throws EngineRefusal `query_too_complex` for a fragment with more values than a statement carries */
export function compile(fragment: Fragment): Statement {
  const { sql, parameters } = fragment.compile(builder);
  if (parameters.length > PARAMETER_LIMIT) {
    throw new EngineRefusal(
      "query_too_complex",
      `The database refuses it: more than ${PARAMETER_LIMIT} values in one statement`,
    );
  }
  return { text: sql, values: parameters.map(asText) };
}

/** The server is told the type of each value by a cast, so that all of them travel as text. */
function asText(value: unknown): string | null {
  switch (typeof value) {
    case "string":
      return value;
    case "number":
    case "bigint":
      return String(value);
    default:
      if (value === null) return null;
      throw new TypeError(`A ${typeof value} cannot be bound to an SQL parameter`);
  }
}
