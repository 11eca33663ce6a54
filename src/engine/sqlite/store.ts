import { randomUUID } from "node:crypto";
import { openSync, readdirSync, rmSync } from "node:fs";
import { type FileHandle, open } from "node:fs/promises";
import { join } from "node:path";
import type { Logger } from "pino";
import { ChannelClosedError } from "../../ipc/channel.ts";
import { ChildProgram, howEnded, siblingModule } from "../../ipc/child-program.ts";
import { isReadOnly } from "../../query/query.ts";
import { EngineRefusal, queryTimedOut, UnknownOutcome } from "../refusal.ts";
import { ConcurrencyLimiter } from "../remote/pool.ts";
import { type Answer, jsonAnswer, type RowStream } from "../spool.ts";
import type { QueryRequest, SchemaPath, Store } from "../store.ts";
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
  readonly #timeLimitMs: number;
  readonly #log: Logger;
  readonly #workers = new Set<WorkerProcess>();
  readonly #idle: WorkerProcess[] = [];
  readonly #slots = new ConcurrencyLimiter(WORKER_LIMIT);

  constructor(directory: string, timeLimitMs: number, log: Logger) {
    this.#directory = directory;
    this.#timeLimitMs = timeLimitMs;
    this.#log = log;
    this.#idle.push(this.#start());
  }

  /**
   * Runs a task as soon as a worker is free. `onSpilled` receives the number of bytes of streamed
   * rows that are in the file.
   */
  run(
    task: Task,
    signal: AbortSignal,
    onSpilled: (byteLength: number) => void = () => {},
  ): Promise<Answer> {
    return this.#slots.hold(signal, async () => {
      // Prefers the worker used last: its files are open and its memory is warm.
      const worker = this.#idle.pop() ?? this.#start();
      clearTimeout(worker.idling);
      worker.onSpilled = onSpilled;
      try {
        return await worker.run(task, this.#timeLimitMs, signal);
      } finally {
        if (worker.isUsable) {
          this.#idle.push(worker);
          worker.idling = setTimeout(() => this.#endIdle(worker), IDLE_MS).unref();
        }
      }
    });
  }

  get isStuck(): boolean {
    return [...this.#workers].some(({ missedBeats }) => missedBeats > NOTICED_BEATS);
  }

  /** Makes every worker close a database's file before its next task. */
  forget(database: string): void {
    for (const worker of this.#workers) worker.forget(database);
  }

  async close(): Promise<void> {
    const closing = Array.from(this.#workers, (worker) => {
      clearTimeout(worker.idling);
      return worker.close(CLOSE_TIME_MS);
    });
    await Promise.all(closing);
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
   */
  async run(task: Task, timeLimit: number, signal: AbortSignal): Promise<Answer> {
    let abandoned: NodeJS.Timeout | undefined;
    const abandon = (): void => {
      abandoned = setTimeout(() => void this.kill(signal.reason), ABANDONED_TIME_MS);
    };
    signal.addEventListener("abort", abandon);
    this.#isCommitting = false;
    const overTime = queryTimedOut(timeLimit);
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

interface LockRequest {
  readonly names: readonly string[];
  /** How many readers' places it takes in each database. */
  readonly places: number;
  readonly grant: () => void;
}

/**
 * Locks of databases, for several readers or one writer each, granted in the order of requests.
 * With these locks, queries never meet SQLite's own, and they wait without occupying a worker.
 */
export class DatabaseLocks {
  readonly #taken = new Map<string, number>();
  readonly #waiting = new Set<LockRequest>();

  shared<T>(name: string, work: () => Promise<T>): Promise<T> {
    return this.#hold([name], 1, work);
  }

  /** A writer takes the places of all readers. */
  exclusive<T>(names: Iterable<string>, work: () => Promise<T>): Promise<T> {
    return this.#hold([...new Set(names)], READERS_PER_DATABASE, work);
  }

  async #hold<T>(names: readonly string[], places: number, work: () => Promise<T>): Promise<T> {
    await new Promise<void>((grant) => {
      this.#waiting.add({ names, places, grant });
      this.#advance();
    });
    try {
      return await work();
    } finally {
      this.#take(names, -places);
      this.#advance();
    }
  }

  #advance(): void {
    // Nobody overtakes a request for the same database, so that readers never starve a writer.
    const claimed = new Set<string>();
    for (const request of this.#waiting) {
      const { names, places, grant } = request;
      const isFree = (name: string): boolean =>
        !claimed.has(name) && (this.#taken.get(name) ?? 0) + places <= READERS_PER_DATABASE;
      if (names.every(isFree)) {
        this.#waiting.delete(request);
        this.#take(names, places);
        grant();
      } else {
        for (const name of names) claimed.add(name);
      }
    }
  }

  #take(names: readonly string[], places: number): void {
    for (const name of names) {
      const taken = (this.#taken.get(name) ?? 0) + places;
      if (taken === 0) this.#taken.delete(name);
      else this.#taken.set(name, taken);
    }
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

const PIECE_LENGTH = 64 * 1024;

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
    const operation = query.accesses[0]?.operation;
    if (operation !== "CreateDatabase" && operation !== "DropDatabase") {
      return this.#locks.exclusive(names, work);
    }
    return this.#locks.exclusive(names, async () => {
      signal.throwIfAborted();
      refusing(() =>
        operation === "CreateDatabase" ? this.#files.create(name) : this.#drop(name),
      );
      const done = operation === "CreateDatabase" ? "created" : "dropped";
      return jsonAnswer({ status: "success", message: `Database ${name} ${done}` });
    });
  }

  /**
   * Sends rows from the file to which a worker writes them. The worker does not wait for the
   * client: SQLite blocks writers while it reads, so a slow client would hold them up.
   */
  async stream(
    { body, query, limits }: QueryRequest,
    stream: RowStream,
    { signal }: AbortController,
  ): Promise<void> {
    const [name = ""] = query.accesses.map((access) => access.database);
    const work = { kind: "rows", body, form: stream.form, limits } as const;
    const spoolPath = this.#newSpoolPath();
    let file: FileHandle | undefined;
    let [known, sent] = [0, 0];
    const sendKnown = async (): Promise<void> => {
      file ??= await open(spoolPath);
      while (sent < known) {
        signal.throwIfAborted();
        const piece = Buffer.allocUnsafe(Math.min(PIECE_LENGTH, known - sent));
        const { bytesRead } = await file.read(piece, 0, piece.length, sent);
        if (bytesRead === 0) throw new Error("The file of an answer is shorter than was told");
        sent += bytesRead;
        stream.writeBytes(piece.subarray(0, bytesRead));
        await stream.backlog;
      }
    };
    let sending = Promise.resolve();
    const onSpilled = (byteLength: number): void => {
      known = byteLength;
      sending = sending.then(sendKnown);
      sending.catch(() => {});
    };
    try {
      const { body, byteLength } = await this.#locks.shared(name, async () => {
        signal.throwIfAborted();
        return this.#pool.run({ work, spoolPath }, signal, onSpilled);
      });
      if (typeof body !== "number") stream.writeBytes(Buffer.from(body));
      else onSpilled(byteLength);
      await sending;
    } finally {
      await sending.catch(() => {});
      await file?.close();
      rmSync(spoolPath, { force: true });
    }
  }

  async readSchema(path: SchemaPath, { signal }: AbortController): Promise<Answer> {
    if (path.database === undefined) {
      return jsonAnswer({ status: "success", data: { databases: this.#files.names() } });
    }
    return this.#locks.shared(path.database, () =>
      this.#inWorker({ kind: "schema", path }, signal),
    );
  }

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

  #drop(name: string): void {
    this.#files.requireDroppable(name);
    this.#pool.forget(name);
    this.#files.remove(name);
  }

  /**
   * The file of a long answer is named here, so that it is removed even if the worker was killed.
   * Once opened, the file needs no name.
   */
  async #inWorker(work: Work, signal: AbortSignal): Promise<Answer> {
    signal.throwIfAborted();
    const spoolPath = this.#newSpoolPath();
    try {
      const answer = await this.#pool.run({ work, spoolPath }, signal);
      return typeof answer.body === "number"
        ? { ...answer, body: openSync(spoolPath, "r") }
        : answer;
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
