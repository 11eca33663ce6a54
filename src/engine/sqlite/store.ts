import { randomUUID } from "node:crypto";
import { readdirSync, rmSync } from "node:fs";
import { type FileHandle, open } from "node:fs/promises";
import { join } from "node:path";
import type { Logger } from "pino";
import { ChannelClosedError } from "../../ipc/channel.ts";
import { ChildProgram, howEnded, siblingModule } from "../../ipc/child-program.ts";
import { isReadOnly } from "../../query/query.ts";
import { jsonAnswer, openAnswer } from "../answers.ts";
import { EngineRefusal, tooSlow, UnknownOutcome } from "../refusal.ts";
import type { RowStream, SpooledAnswer } from "../spool.ts";
import type { Answer, QueryRequest, SchemaPlace, Store } from "../store.ts";
import { refusing } from "./failures.ts";
import { DatabaseFiles, defaultDatabase, lockDirectory } from "./files.ts";
import {
  type EngineCalls,
  type Task,
  type TaskFailure,
  taskErrors,
  type Work,
  type WorkerCalls,
} from "./protocol.ts";

/** How long an idle worker may take to close its files. */
const CLOSE_TIME_MS = 5000;

/** Frees the memory that a worker's queries have taken. */
const IDLE_MS = 60_000;

/** Greater than `READERS_PER_DATABASE`, so that one database does not occupy all workers. */
const WORKER_LIMIT = 6;

/**
 * Workers over one directory. They are started when needed, kept, and replaced when they had to be
 * killed.
 */
class WorkerPool {
  readonly #directory: string;
  readonly #timeLimit: number;
  readonly #log: Logger;
  readonly #workers = new Set<WorkerProcess>();
  readonly #idle: WorkerProcess[] = [];
  readonly #waiting: ((worker: WorkerProcess) => void)[] = [];

  /**
   * Starts the first worker.
   *
   * @param timeLimit limit for one task, in milliseconds
   */
  constructor(directory: string, timeLimit: number, log: Logger) {
    this.#directory = directory;
    this.#timeLimit = timeLimit;
    this.#log = log;
    this.#idle.push(this.#start());
  }

  /**
   * Runs a task as soon as a worker is free. `onSpilled` receives the number of bytes of streamed
   * rows that are in the file.
   */
  async run(
    task: Task,
    signal: AbortSignal,
    onSpilled: (byteLength: number) => void = () => {},
  ): Promise<SpooledAnswer> {
    const worker = await this.#take();
    try {
      signal.throwIfAborted();
      worker.onSpilled = onSpilled;
      return await worker.run(task, this.#timeLimit, signal);
    } finally {
      this.#giveBack(worker);
    }
  }

  get isStuck(): boolean {
    return [...this.#workers].some(({ missedBeats }) => missedBeats > NOTICED_BEATS);
  }

  /** Makes every worker close a database's file before its next task. */
  forget(database: string): void {
    for (const worker of this.#workers) worker.forget(database);
  }

  /** Ends all workers, which must be idle. */
  async close(): Promise<void> {
    const closing = Array.from(this.#workers, (worker) => {
      clearTimeout(worker.idling);
      return worker.close(CLOSE_TIME_MS);
    });
    await Promise.all(closing);
  }

  /** Prefers the worker used last: its files are open and its memory is warm. */
  async #take(): Promise<WorkerProcess> {
    const idle = this.#idle.pop();
    clearTimeout(idle?.idling);
    if (idle !== undefined) return idle;
    if (this.#workers.size < WORKER_LIMIT) return this.#start();
    return new Promise((resolve) => this.#waiting.push(resolve));
  }

  #giveBack(worker: WorkerProcess): void {
    const next = this.#waiting.shift();
    if (next !== undefined) next(worker.isUsable ? worker : this.#start());
    else if (worker.isUsable) {
      this.#idle.push(worker);
      worker.idling = setTimeout(() => this.#endIdle(worker), IDLE_MS).unref();
    }
  }

  #endIdle(worker: WorkerProcess): void {
    this.#remove(worker);
    void worker.close(CLOSE_TIME_MS);
    // Keeps a fresh worker ready for the next query.
    if (this.#workers.size === 0) this.#idle.push(this.#start());
  }

  #start(): WorkerProcess {
    const worker = new WorkerProcess(this.#directory);
    this.#workers.add(worker);
    void worker.ended.then((ending) => {
      this.#remove(worker);
      if (worker.isLost && ending.code !== 0) {
        this.#log.error({ reason: howEnded(ending) }, "a SQLite process died and is replaced");
      }
    });
    return worker;
  }

  #remove(worker: WorkerProcess): void {
    this.#workers.delete(worker);
    const index = this.#idle.indexOf(worker);
    if (index >= 0) this.#idle.splice(index, 1);
  }
}

/** Consecutive unanswered pings, one per second, before the health check fails. */
const NOTICED_BEATS = 3;

/** Unanswered pings before a worker is killed, in operation and while it starts. */
const MISSABLE_BEATS = 6;
const MISSABLE_AT_START = 30;

/** How long a task may continue after its client is gone, before its worker is killed. */
const ABANDONED_TIME_MS = 500;

const died = [
  "upstream_broken",
  "The SQLite process ended before it answered; nothing was carried out",
] as const;

/**
 * A process that runs tasks, one at a time.
 *
 * SQLite's statements are synchronous and cannot be interrupted from JavaScript. A terminated
 * thread would continue until its statement ends. A process is killed at once, and the journal
 * undoes what it had not committed.
 */
class WorkerProcess extends ChildProgram<WorkerCalls, EngineCalls, TaskFailure> {
  /** Receives the number of bytes of the task's answer that are in the file. */
  onSpilled: (byteLength: number) => void = () => {};
  idling: NodeJS.Timeout | undefined;
  /** False once the engine itself has ended the worker. */
  isLost = true;
  #isCommitting = false;

  constructor(directory: string) {
    const { GATEHOUSE_ENGINE_AUTHORIZATION: _, GATEHOUSE_ENGINE_URL: __, ...env } = process.env;
    super(siblingModule(import.meta.url, "worker"), {
      args: [directory],
      fork: {
        // Keeps a terminal's Ctrl-C, which is for the engine only, from reaching the worker.
        detached: true,
        env,
        execArgv: ["--disable-warning=ExperimentalWarning"],
        stdio: ["pipe", "pipe", "inherit", "ipc"],
      },
      handlers: {
        spilled: (byteLength) => void this.onSpilled(byteLength),
        committing: () => {
          this.#isCommitting = true;
          return undefined;
        },
      },
      heartbeat: {
        missable: MISSABLE_BEATS,
        missableAtStart: MISSABLE_AT_START,
        whileIdle: true,
        overStdio: true,
      },
      errors: taskErrors,
    });
  }

  /**
   * Runs one task within `timeLimit` milliseconds. When it rejects, the worker is idle again or
   * gone.
   *
   * @throws EngineRefusal, including `query_timeout`, `outcome_unknown` and `upstream_broken`, the
   * reason of `signal` once it is aborted, or the error of the task
   */
  async run(task: Task, timeLimit: number, signal: AbortSignal): Promise<SpooledAnswer> {
    let abandoned: NodeJS.Timeout | undefined;
    const abandon = (): void => {
      abandoned = setTimeout(() => void this.kill(signal.reason), ABANDONED_TIME_MS);
    };
    signal.addEventListener("abort", abandon);
    this.#isCommitting = false;
    const overTime = tooSlow(timeLimit);
    try {
      return await this.ask("run", task, { ms: timeLimit, onMissed: () => overTime });
    } catch (error) {
      const isLost = error instanceof ChannelClosedError;
      if (this.#isCommitting && (isLost || error === overTime)) {
        const limit = `The time limit of ${timeLimit / 1000} seconds was reached`;
        throw new UnknownOutcome(error, isLost ? "The SQLite process ended" : limit);
      }
      throw isLost ? new EngineRefusal(...died, { cause: error }) : error;
    } finally {
      signal.removeEventListener("abort", abandon);
      clearTimeout(abandoned);
    }
  }

  override kill(reason?: Error): Promise<void> {
    this.isLost = reason instanceof ChannelClosedError;
    return super.kill(reason);
  }

  forget(database: string): void {
    // A worker that is gone has closed the file.
    this.ask("forget", database).catch(() => {});
  }
}

/** Leaves some workers for other databases. */
const READERS_PER_DATABASE = 3;

/**
 * One lock per database in use, so that queries do not block other databases. With these locks,
 * queries never meet SQLite's own. They wait in order and without occupying a worker.
 */
export class DatabaseLocks {
  readonly #locks = new Map<string, ReadWriteLock>();

  shared<T>(name: string, work: () => Promise<T>): Promise<T> {
    return this.#use(name, (lock) => lock.shared(work));
  }

  exclusive<T>(names: Iterable<string>, work: () => Promise<T>): Promise<T> {
    // A common order prevents deadlocks.
    return this.#lockAll([...new Set(names)].sort(), work);
  }

  #lockAll<T>([first, ...others]: readonly string[], work: () => Promise<T>): Promise<T> {
    if (first === undefined) return work();
    return this.#use(first, (lock) => lock.exclusive(() => this.#lockAll(others, work)));
  }

  async #use<T>(name: string, hold: (lock: ReadWriteLock) => Promise<T>): Promise<T> {
    const lock = this.#locks.get(name) ?? new ReadWriteLock(READERS_PER_DATABASE);
    this.#locks.set(name, lock);
    try {
      return await hold(lock);
    } finally {
      if (lock.isFree) this.#locks.delete(name);
    }
  }
}

type Mode = "shared" | "exclusive";

interface Waiter {
  readonly mode: Mode;
  readonly grant: () => void;
}

/**
 * A lock for several readers or one writer, granted in the order of requests, so that a stream of
 * readers never starves a writer.
 */
export class ReadWriteLock {
  readonly #waiters: Waiter[] = [];
  readonly #readerLimit: number;
  #readers = 0;
  #written = false;

  /** @param readerLimit maximum number of concurrent readers */
  constructor(readerLimit = Number.POSITIVE_INFINITY) {
    this.#readerLimit = readerLimit;
  }

  get isFree(): boolean {
    return this.#readers === 0 && !this.#written && this.#waiters.length === 0;
  }

  shared<T>(work: () => Promise<T>): Promise<T> {
    return this.#hold("shared", work);
  }

  exclusive<T>(work: () => Promise<T>): Promise<T> {
    return this.#hold("exclusive", work);
  }

  async #hold<T>(mode: Mode, work: () => Promise<T>): Promise<T> {
    await new Promise<void>((grant) => {
      this.#waiters.push({ mode, grant });
      this.#advance();
    });
    try {
      return await work();
    } finally {
      if (mode === "shared") this.#readers -= 1;
      else this.#written = false;
      this.#advance();
    }
  }

  #advance(): void {
    for (let next = this.#waiters[0]; next !== undefined; next = this.#waiters[0]) {
      if (!this.#admits(next.mode)) return;
      this.#waiters.shift();
      if (next.mode === "shared") this.#readers += 1;
      else this.#written = true;
      next.grant();
    }
  }

  #admits(mode: Mode): boolean {
    if (this.#written) return false;
    return mode === "shared" ? this.#readers < this.#readerLimit : this.#readers === 0;
  }
}

/** At startup, files with this prefix are removed: a crash left them. */
const spoolFilePrefix = ".answer-";

/**
 * Opens a directory of SQLite files as a store, for this process only. Creates the directory (mode
 * 0700) and the database `main` if needed.
 *
 * @param queryTimeLimit in milliseconds
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

/** This process never runs SQLite. The store creates and deletes files, and workers use them. */
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

  /** Checks that the files exist and that the workers answer. */
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
   * The file of a long answer is named here, so that it is removed even if the worker was killed.
   * Once opened, the file needs no name.
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

const PIECE_LENGTH = 64 * 1024;

/**
 * Sends rows from the file to which a worker writes them. The worker does not wait for the client:
 * SQLite blocks writers while it reads, so a slow client would hold them up.
 */
class SpooledRows {
  readonly #path: string;
  readonly #stream: RowStream;
  readonly #signal: AbortSignal;
  #file: FileHandle | undefined;
  /** Bytes that are in the file, and how many of them were sent. */
  #known = 0;
  #sent = 0;
  #sending: Promise<void> | undefined;
  #failure: unknown;

  constructor(path: string, stream: RowStream, signal: AbortSignal) {
    this.#path = path;
    this.#stream = stream;
    this.#signal = signal;
  }

  readonly onSpilled = (byteLength: number): void => {
    this.#known = byteLength;
    this.#sending ??= this.#send().catch((error: unknown) => {
      this.#failure = error;
    });
  };

  /**
   * Sends the rest of a complete answer.
   *
   * @throws what the file system throws, and the signal's reason
   */
  async finish(spooled: SpooledAnswer): Promise<void> {
    if (spooled.kind === "memory") {
      this.#stream.writeBytes(Buffer.from(spooled.bytes));
      return;
    }
    this.onSpilled(spooled.byteLength);
    await this.#sending;
    if (this.#failure !== undefined) throw this.#failure;
  }

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
