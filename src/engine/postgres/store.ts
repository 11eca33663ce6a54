import type { Logger } from "pino";
import { parseBodyExactly } from "../parse.ts";
import { Spool } from "../spool.ts";
import { jsonAnswer, openUnnamedFile, takeAnswer } from "../spooled-answer.ts";
import type { Answer, QueryRequest, SchemaPlace, Store } from "../store.ts";
import { describeTable, listTables } from "./catalog.ts";
import { refusalOf, withoutWords } from "./failures.ts";
import { performAll, type Work } from "./operations.ts";
import type { ConnectionPool } from "./pool.ts";
import { Reachability } from "./reachability.ts";
import { createSchema, dropSchema, listSchemas, visibleSchema } from "./schemas.ts";
import type { Session } from "./session.ts";
import { Slots } from "./slots.ts";
import { type Mode, transaction } from "./transaction.ts";

/** What a store over PostgreSQL is made of. */
export interface PostgresStoreOptions {
  readonly pool: ConnectionPool;
  /** How many queries are carried out at a time; the others wait in turn. */
  readonly connectionLimit: number;
  /** How long a query may take in the database, in milliseconds. */
  readonly timeLimit: number;
  readonly log: Logger;
}

/**
 * The schemas of one PostgreSQL database. Every query is one transaction, whose answer is whole
 * before a byte of it is sent.
 */
export class PostgresStore implements Store {
  readonly #pool: ConnectionPool;
  readonly #slots: Slots;
  readonly #timeLimit: number;
  readonly #reachability: Reachability;

  constructor({ pool, connectionLimit, timeLimit, log }: PostgresStoreOptions) {
    this.#pool = pool;
    this.#slots = new Slots(connectionLimit);
    this.#timeLimit = timeLimit;
    this.#reachability = new Reachability(log);
  }

  async execute({ body }: QueryRequest, signal: AbortSignal): Promise<Answer> {
    const query = parseBodyExactly(body);
    return this.#hold(signal, async () => {
      if ("CreateDatabase" in query) return this.#create(query.CreateDatabase.database, signal);
      if ("DropDatabase" in query) return this.#drop(query.DropDatabase.database, signal);
      if ("Batch" in query)
        return this.#perform({ isBatch: true, operations: query.Batch }, signal);
      return this.#perform({ isBatch: false, operations: [query] }, signal);
    });
  }

  async readSchema(place: SchemaPlace, signal: AbortSignal): Promise<Answer> {
    return this.#hold(signal, async () => {
      const data = await this.#transact("read only", signal, (session) => describe(session, place));
      return jsonAnswer({ status: "success", data });
    });
  }

  async close(): Promise<void> {
    await this.#pool.close();
  }

  /** Does the work when it is its turn; only refusals, and errors that may be logged, leave it. */
  async #hold(signal: AbortSignal, work: () => Promise<Answer>): Promise<Answer> {
    return this.#slots.hold(signal, async () => {
      try {
        const answer = await work();
        this.#reachability.noteSuccess();
        return answer;
      } catch (error) {
        const refusal = refusalOf(error);
        if (refusal?.code === "database_unavailable") this.#reachability.noteFailure(error);
        throw refusal ?? withoutWords(error);
      }
    });
  }

  async #create(name: string, signal: AbortSignal): Promise<Answer> {
    await this.#transact("read committed", signal, (session) => createSchema(session, name));
    return jsonAnswer({ status: "success", message: `Database ${name} created` });
  }

  async #drop(name: string, signal: AbortSignal): Promise<Answer> {
    await this.#transact("read committed", signal, (session) => dropSchema(session, name));
    return jsonAnswer({ status: "success", message: `Database ${name} dropped` });
  }

  async #perform(work: Work, signal: AbortSignal): Promise<Answer> {
    let spool = new Spool(openUnnamedFile);
    try {
      await this.#transact(modeOf(work), signal, async (session) => {
        // What an earlier attempt has written is not what this one finds.
        spool.close();
        spool = new Spool(openUnnamedFile);
        await performAll(session, work, spool);
        // Its room is taken before the commit: no committed query is reported as failed for it.
        spool.flush();
      });
      return takeAnswer(spool);
    } finally {
      spool.close();
    }
  }

  async #transact<Result>(
    mode: Mode,
    signal: AbortSignal,
    work: (session: Session) => Promise<Result>,
  ): Promise<Result> {
    return transaction(this.#pool, { mode, timeLimit: this.#timeLimit, signal }, work);
  }
}

async function describe(session: Session, { database, table }: SchemaPlace): Promise<object> {
  if (database === undefined) return { databases: await listSchemas(session) };
  const place = { session, schema: visibleSchema(database) };
  if (table === undefined) return { tables: await listTables(place) };
  return { columns: await describeTable(place, table) };
}

/** A Batch sees one state throughout, as if no other query ran beside it. */
function modeOf({ isBatch, operations }: Work): Mode {
  const onlyReads = operations.every((operation) => "Select" in operation);
  if (isBatch) return onlyReads ? "snapshot, read only" : "serializable";
  return onlyReads ? "read only" : "read committed";
}
