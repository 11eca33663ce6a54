import { randomUUID } from "node:crypto";
import { readdirSync, rmSync } from "node:fs";
import { type FileHandle, open } from "node:fs/promises";
import { join } from "node:path";
import type { Logger } from "pino";
import { isReadOnly } from "../../query/query.ts";
import { jsonAnswer, openAnswer } from "../answers.ts";
import { EngineRefusal } from "../refusal.ts";
import type { RowStream, SpooledAnswer } from "../spool.ts";
import type { Answer, QueryRequest, SchemaPlace, Store } from "../store.ts";
import { WorkerPool } from "../workers/pool.ts";
import type { Work } from "../workers/protocol.ts";
import { DatabaseLocks } from "./database-locks.ts";
import { refusing } from "./failures.ts";
import { DatabaseFiles, defaultDatabase, lockDirectory } from "./files.ts";

/** How the names of spool files begin, by which a start finds those that a crash left behind. */
const spoolFilePrefix = ".answer-";

/**
 * Opens a directory of SQLite files as a store, for this process alone. The directory is made
 * (mode 0700) if needed, and so is the database `main`. A query may take `queryTimeLimit`
 * milliseconds.
 *
 * @throws DirectoryInUseError, or the file system's error if the directory cannot be used
 */
export async function openSqliteStore(
  directory: string,
  queryTimeLimit: number,
  log: Logger,
): Promise<Store> {
  const files = new DatabaseFiles(directory);
  files.makeDirectory();
  const unlock = await lockDirectory(files.directory);
  try {
    removeSpoolFiles(files.directory);
    files.makeDefault();
    return new SqliteStore(files, new WorkerPool(files.directory, queryTimeLimit, log), unlock);
  } catch (error) {
    await unlock();
    throw error;
  }
}

/** Nothing of SQLite runs in this process: the store makes and drops files, workers use them. */
class SqliteStore implements Store {
  readonly #files: DatabaseFiles;
  readonly #pool: WorkerPool;
  readonly #unlock: () => Promise<void>;
  readonly #locks = new DatabaseLocks();

  constructor(files: DatabaseFiles, pool: WorkerPool, unlock: () => Promise<void>) {
    this.#files = files;
    this.#pool = pool;
    this.#unlock = unlock;
  }

  async execute(
    { body, query, limits }: QueryRequest,
    { signal }: AbortController,
  ): Promise<Answer> {
    const names = query.accesses.map((access) => access.database);
    const [name = ""] = names;
    const work = (): Promise<Answer> => this.#inWorker({ kind: "query", body, limits }, signal);
    if (!query.batch && isReadOnly(query)) return this.#locks.shared(name, work);
    switch (query.accesses[0]?.operation) {
      case "CreateDatabase":
        return this.#locks.exclusive(names, async () => refusing(() => this.#create(name, signal)));
      case "DropDatabase":
        return this.#locks.exclusive(names, async () => refusing(() => this.#drop(name, signal)));
      default:
        return this.#locks.exclusive(names, work);
    }
  }

  async stream(
    { body, query, limits }: QueryRequest,
    stream: RowStream,
    { signal }: AbortController,
  ): Promise<void> {
    const [name = ""] = query.accesses.map((access) => access.database);
    const spoolPath = this.#newSpoolPath();
    const rows = new SpooledRows(spoolPath, stream, signal);
    const work = { kind: "rows", body, form: stream.form, limits } as const;
    try {
      const spooled = await this.#locks.shared(name, async () => {
        signal.throwIfAborted();
        return this.#pool.run({ work, spoolPath }, signal, rows.onSpilled);
      });
      await rows.finish(spooled);
    } finally {
      await rows.close();
      rmSync(spoolPath, { force: true });
    }
  }

  async readSchema(place: SchemaPlace, { signal }: AbortController): Promise<Answer> {
    if (place.database === undefined) {
      return jsonAnswer({ status: "success", data: { databases: this.#files.names() } });
    }
    return this.#locks.shared(place.database, () =>
      this.#inWorker({ kind: "schema", place }, signal),
    );
  }

  /** The files have to be there, and the workers to give signs of life. */
  async check(): Promise<void> {
    if (this.#pool.isStuck) {
      throw new EngineRefusal("database_unavailable", "A SQLite process does not answer");
    }
    try {
      this.#files.requireExisting(defaultDatabase);
    } catch (error) {
      throw new EngineRefusal("database_unavailable", "The databases' files are not there", {
        cause: error,
      });
    }
  }

  async close(): Promise<void> {
    await this.#pool.close();
    await this.#unlock();
  }

  #create(name: string, signal: AbortSignal): Answer {
    signal.throwIfAborted();
    this.#files.create(name);
    return jsonAnswer({ status: "success", message: `Database ${name} created` });
  }

  #drop(name: string, signal: AbortSignal): Answer {
    signal.throwIfAborted();
    this.#files.requireDroppable(name);
    this.#pool.forget(name);
    this.#files.remove(name);
    return jsonAnswer({ status: "success", message: `Database ${name} dropped` });
  }

  /**
   * The name of a long answer's file is known here, so that it is removed also when the worker
   * was killed; once opened, the file needs no name.
   */
  async #inWorker(work: Work, signal: AbortSignal): Promise<Answer> {
    signal.throwIfAborted();
    const spoolPath = this.#newSpoolPath();
    try {
      return openAnswer(await this.#pool.run({ work, spoolPath }, signal), spoolPath);
    } finally {
      rmSync(spoolPath, { force: true });
    }
  }

  #newSpoolPath(): string {
    return join(this.#files.directory, spoolFilePrefix + randomUUID());
  }
}

function removeSpoolFiles(directory: string): void {
  for (const entry of readdirSync(directory)) {
    if (entry.startsWith(spoolFilePrefix)) rmSync(join(directory, entry), { force: true });
  }
}

/** Bytes that are read at a time. */
const PIECE_LENGTH = 64 * 1024;

/**
 * Rows on their way from the file that a worker puts them to. The worker does not wait for the client:
 * SQLite lets nobody write while it reads, and a client that reads slowly would hold all of them up.
 */
class SpooledRows {
  readonly #path: string;
  readonly #stream: RowStream;
  readonly #signal: AbortSignal;
  #file: FileHandle | undefined;
  /** Bytes that are in the file, and those of them that were sent. */
  #known = 0;
  #sent = 0;
  #sending: Promise<void> | undefined;
  #failure: unknown;

  constructor(path: string, stream: RowStream, signal: AbortSignal) {
    this.#path = path;
    this.#stream = stream;
    this.#signal = signal;
  }

  /** Sends what is in the file, which has so many bytes now. */
  readonly onSpilled = (byteLength: number): void => {
    this.#known = byteLength;
    this.#sending ??= this.#send().catch((error: unknown) => {
      this.#failure = error;
    });
  };

  /** Sends the rest of a whole answer. @throws what the file system throws, and the signal's reason */
  async finish(spooled: SpooledAnswer): Promise<void> {
    if (spooled.kind === "memory") {
      this.#stream.writeBytes(Buffer.from(spooled.bytes));
      return;
    }
    this.onSpilled(spooled.byteLength);
    await this.#sending;
    if (this.#failure !== undefined) throw this.#failure;
  }

  /** Closes the file. */
  async close(): Promise<void> {
    await this.#sending;
    await this.#file?.close();
  }

  async #send(): Promise<void> {
    this.#file ??= await open(this.#path);
    while (this.#sent < this.#known) {
      this.#signal.throwIfAborted();
      const piece = Buffer.allocUnsafe(Math.min(PIECE_LENGTH, this.#known - this.#sent));
      const { bytesRead } = await this.#file.read(piece, 0, piece.length, this.#sent);
      if (bytesRead === 0) throw new Error("The file of an answer is shorter than was told");
      this.#sent += bytesRead;
      this.#stream.writeBytes(piece.subarray(0, bytesRead));
      await this.#stream.backlog;
    }
    this.#sending = undefined;
  }
}
