import type { QueryBody, TableOperation } from "../../query/shape.ts";
import { Spool } from "../spool.ts";
import type { Store } from "../store.ts";
import { Databases, type Session } from "./databases.ts";
import { refusalOf } from "./failures.ts";
import type { DatabaseHandle } from "./handle.ts";
import { ReadWriteLock } from "./lock.ts";
import { databaseOf, perform } from "./operations.ts";
import { Pace } from "./pace.ts";
import { transaction } from "./transaction.ts";

/**
 * Opens a directory of SQLite files as a store. The directory is made (mode 0700) if needed, and
 * so is the database `main`.
 *
 * Throws the file system's error if the directory cannot be used.
 */
export function openSqliteStore(directory: string): Store {
  return new SqliteStore(new Databases(directory));
}

/**
 * One lock covers all databases: `node:sqlite` runs one statement at a time whatever the file,
 * so a finer one would only add cases. Selects share it; their rows are spooled under it.
 */
class SqliteStore implements Store {
  readonly #databases: Databases;
  readonly #lock = new ReadWriteLock();

  constructor(databases: Databases) {
    this.#databases = databases;
  }

  async execute(query: QueryBody, spool: Spool, signal: AbortSignal): Promise<void> {
    const pace = new Pace(signal);
    const work = (): Promise<void> => {
      signal.throwIfAborted();
      return this.#dispatch(query, spool, pace);
    };
    try {
      await ("Select" in query ? this.#lock.shared(work) : this.#lock.exclusive(work));
    } catch (error) {
      throw refusalOf(error) ?? error;
    }
  }

  createSpool(): Spool {
    return new Spool(this.#databases.directory);
  }

  async close(): Promise<void> {
    await this.#lock.exclusive(async () => this.#databases.close());
  }

  async #dispatch(query: QueryBody, spool: Spool, pace: Pace): Promise<void> {
    if ("CreateDatabase" in query) {
      const { database } = query.CreateDatabase;
      this.#databases.create(database);
      writeMessage(spool, `Database ${database} created`);
    } else if ("DropDatabase" in query) {
      const { database } = query.DropDatabase;
      this.#databases.drop(database);
      writeMessage(spool, `Database ${database} dropped`);
    } else if ("Batch" in query) {
      await this.#batch(query.Batch, spool, pace);
    } else {
      await this.#single(query, spool, pace);
    }
  }

  async #single(operation: TableOperation, spool: Spool, pace: Pace): Promise<void> {
    const handle = this.#databases.open(databaseOf(operation));
    const isSelect = "Select" in operation;
    spool.write(`{"status":"success",${isSelect ? '"data"' : '"message"'}:`);
    const work = async (): Promise<void> => {
      await perform(handle, operation, spool, pace);
      endAnswer(spool, "}");
    };
    await (isSelect ? work() : transaction(handle.connection, work));
  }

  async #batch(operations: readonly TableOperation[], spool: Spool, pace: Pace): Promise<void> {
    const session = await this.#openSession(operations);
    try {
      spool.write(`{"status":"success","data":`);
      await transaction(session.connection, async () => {
        await performAll(session, operations, spool, pace);
        endAnswer(spool, "]}");
      });
    } finally {
      session.close();
    }
  }

  /** The databases of a Batch; one that is alone is reached by the connection that is kept. */
  async #openSession(operations: readonly TableOperation[]): Promise<Session> {
    const places = operations.map(databaseOf);
    const names = [...new Set(places)];
    for (const name of names) {
      await inElement(places.indexOf(name), () => this.#databases.requireExisting(name));
    }
    const [first, ...others] = names;
    if (first === undefined || others.length > 0) return this.#databases.openTogether(names);
    const handle = this.#databases.open(first);
    return { connection: handle.connection, handles: new Map([[first, handle]]), close() {} };
  }
}

async function performAll(
  session: Session,
  operations: readonly TableOperation[],
  spool: Spool,
  pace: Pace,
): Promise<void> {
  for (const [index, operation] of operations.entries()) {
    spool.write(index === 0 ? "[" : ",");
    const handle = handleOf(session, operation);
    await inElement(index, () => perform(handle, operation, spool, pace));
  }
}

/** Does the work for one element of a Batch; a refusal then says which. */
async function inElement(index: number, work: () => Promise<void> | void): Promise<void> {
  try {
    await work();
  } catch (error) {
    throw refusalOf(error)?.at(`Batch[${index}]`) ?? error;
  }
}

function handleOf(session: Session, operation: TableOperation): DatabaseHandle {
  const handle = session.handles.get(databaseOf(operation));
  if (handle === undefined) throw new Error("A Batch reached past its session");
  return handle;
}

/** Gives the answer its room before the commit: no committed query is reported as failed for it. */
function endAnswer(spool: Spool, text: string): void {
  spool.write(text);
  spool.flush();
}

function writeMessage(spool: Spool, message: string): void {
  spool.write(JSON.stringify({ status: "success", message }));
}
