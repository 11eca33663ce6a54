import { randomUUID } from "node:crypto";
import { openSync, readdirSync, rmSync } from "node:fs";
import { type FileHandle, open, rm } from "node:fs/promises";
import { join } from "node:path";
import type { Logger } from "pino";
import { ChannelClosedError, ChildProgram, howEnded, siblingModule } from "../../core/base/ipc.ts";
import { anyone, FairQueue, Sums } from "../../core/base/queues.ts";
import { isReadOnly } from "../../core/query/query.ts";
import { EngineRefusal, queryTimedOut, UnknownOutcome } from "../refusal.ts";
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

const CLOSE_TIMEOUT_MS = 5000;

/** Ending idle workers frees their memory. */
const IDLE_TIMEOUT_MS = 60_000;

/** Greater than `READERS_PER_DATABASE`, so that one database does not occupy all workers. */
const RUNNING_LIMIT = 6;

/** Further workers, which parse long bodies or hold them while their databases are locked. */
const PARSING_LIMIT = 3;

/** Parsing a shorter body takes no longer than a round trip to a worker. */
const LONG_BODY = 64 * 1024;

/** Takes locks for the time of `work`. */
type Locking = <Result>(work: () => Promise<Result>) => Promise<Result>;

type OnSpilled = (spilled: { readonly byteLength: number; readonly rows: number }) => void;

/** Workers are started when needed, and replaced after they were killed. */
class WorkerPool {
  readonly #args: readonly string[];
  readonly #timeLimitMs: number;
  readonly #log: Logger;
  readonly #workers = new Set<WorkerProcess>();
  readonly #idle: WorkerProcess[] = [];
  readonly #running = new FairQueue({ slots: RUNNING_LIMIT });
  readonly #parsing = new FairQueue({ slots: PARSING_LIMIT });

  constructor(directory: string, { timeLimit, log, isGuest }: SqliteOptions) {
    this.#args = [directory, isGuest ? "guest" : "owner"];
    this.#timeLimitMs = timeLimit;
    this.#log = log;
    this.#idle.push(this.#start());
  }

  /** `onSpilled` receives the numbers of bytes and rows that are streamed in the file. */
  run(task: Task, signal: AbortSignal, onSpilled: OnSpilled): Promise<Answer> {
    return this.#running.hold(anyone, signal, () =>
      this.#lend((worker) => {
        worker.onSpilled = onSpilled;
        return worker.perform("run", task, this.#timeLimitMs, signal);
      }),
    );
  }

  /**
   * Runs a task whose body is parsed before `locking` takes the locks. The worker that has parsed it
   * waits for them, outside the limit of those that run.
   *
   * @returns the answer, once the task is under way
   */
  async runParsed(
    task: Task,
    signal: AbortSignal,
    onSpilled: OnSpilled,
    locking: Locking,
  ): Promise<{ readonly answer: Promise<Answer> }> {
    return this.#parsing.hold(anyone, signal, async () => {
      const { promise: isUnderWay, resolve: onUnderWay } = Promise.withResolvers<void>();
      const answer = this.#lend(async (worker) => {
        worker.onSpilled = onSpilled;
        await worker.perform("parse", task, this.#timeLimitMs, signal);
        const run = () => {
          onUnderWay();
          return worker.perform("run", undefined, this.#timeLimitMs, signal);
        };
        try {
          return await locking(() => this.#running.hold(anyone, signal, run));
        } finally {
          // It may still hold the body.
          if (signal.aborted) void worker.kill(signal.reason);
        }
      });
      await Promise.race([isUnderWay, answer]);
      return { answer };
    });
  }

  get isStuck(): boolean {
    return [...this.#workers].some(({ missedBeats }) => missedBeats > NOTICED_BEATS);
  }

  /** Every worker closes the database's file before its next task. */
  forget(database: string): void {
    for (const worker of this.#workers) worker.forget(database);
  }

  async close(): Promise<void> {
    const closing = Array.from(this.#workers, (worker) => {
      clearTimeout(worker.idling);
      return worker.close(CLOSE_TIMEOUT_MS);
    });
    await Promise.all(closing);
  }

  async #lend<Result>(work: (worker: WorkerProcess) => Promise<Result>): Promise<Result> {
    // Prefers the worker used last, whose files are open.
    const worker = this.#idle.pop() ?? this.#start();
    clearTimeout(worker.idling);
    try {
      return await work(worker);
    } finally {
      if (worker.isUsable) {
        this.#idle.push(worker);
        worker.idling = setTimeout(() => this.#endIdle(worker), IDLE_TIMEOUT_MS).unref();
      }
    }
  }

  #endIdle(worker: WorkerProcess): void {
    this.#remove(worker);
    void worker.close(CLOSE_TIMEOUT_MS);
    if (this.#workers.size === 0) this.#idle.push(this.#start());
  }

  #start(): WorkerProcess {
    const worker = new WorkerProcess(this.#args);
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

/** A task may continue for this long after its client has left. */
const ABANDONED_TIMEOUT_MS = 500;

/**
 * Runs one task at a time. SQLite's statements are synchronous, and a terminated thread would
 * continue until its statement ends. A process is killed at once, and the journal undoes its changes.
 */
class WorkerProcess extends ChildProgram<WorkerCalls, EngineCalls, TaskFailure> {
  onSpilled: OnSpilled = () => {};
  idling: NodeJS.Timeout | undefined;
  /** False if the engine itself ended the worker. */
  isLost = true;
  #isCommitting = false;

  constructor(args: readonly string[]) {
    super(siblingModule(import.meta.url, "worker"), {
      args,
      fork: {
        // A terminal's Ctrl-C must only reach the engine.
        detached: true,
        execArgv: ["--disable-warning=ExperimentalWarning"],
        stdio: ["pipe", "pipe", "inherit", "ipc"],
      },
      handlers: {
        spilled: (spilled) => void this.onSpilled(spilled),
        committing: () => {
          this.#isCommitting = true;
          return undefined;
        },
      },
      heartbeat: {
        maxMissed: MISSABLE_BEATS,
        maxMissedAtStart: MISSABLE_AT_START,
        overStdio: true,
      },
      errors: taskErrors,
    });
  }

  /** When this rejects, the worker is idle again or gone. */
  async perform<Name extends "parse" | "run">(
    name: Name,
    ask: EngineCalls[Name]["ask"],
    limitMs: number,
    signal: AbortSignal,
  ): Promise<EngineCalls[Name]["answer"]> {
    let abandoned: NodeJS.Timeout | undefined;
    const abandon = (): void => {
      abandoned = setTimeout(() => void this.kill(signal.reason), ABANDONED_TIMEOUT_MS);
    };
    signal.addEventListener("abort", abandon);
    this.#isCommitting = false;
    let timedOut: EngineRefusal | undefined;
    const onMissed = (): EngineRefusal => {
      timedOut = queryTimedOut(limitMs);
      return timedOut;
    };
    try {
      return await this.ask(name, ask, { ms: limitMs, onMissed });
    } catch (error) {
      const isLost = error instanceof ChannelClosedError;
      if (this.#isCommitting && (isLost || error === timedOut)) {
        const limit = `The time limit of ${limitMs / 1000} seconds was reached`;
        throw new UnknownOutcome(error, isLost ? "The SQLite process ended" : limit);
      }
      if (!isLost) throw error;
      const problem = "The SQLite process ended before it answered; nothing was changed";
      throw new EngineRefusal("upstream_broken", problem, { cause: error });
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

/** Leaves workers for other databases. */
const READERS_PER_DATABASE = 3;

interface LockRequest {
  readonly names: readonly string[];
  /** Readers' slots that it takes in each database. */
  readonly slots: number;
  readonly grant: () => void;
}

/**
 * Locks for several readers or one writer of each database, granted in order. Queries never meet
 * SQLite's own locks, and wait without occupying a worker.
 */
export class DatabaseLocks {
  readonly #usedSlots = new Sums();
  readonly #waiting = new Set<LockRequest>();

  shared<T>(names: readonly string[], work: () => Promise<T>): Promise<T> {
    return this.#hold(names, 1, work);
  }

  /** A writer takes the slots of all readers. */
  exclusive<T>(names: readonly string[], work: () => Promise<T>): Promise<T> {
    return this.#hold(names, READERS_PER_DATABASE, work);
  }

  async #hold<T>(all: readonly string[], slots: number, work: () => Promise<T>): Promise<T> {
    const names = [...new Set(all)];
    await new Promise<void>((grant) => {
      this.#waiting.add({ names, slots, grant });
      this.#advance();
    });
    try {
      return await work();
    } finally {
      this.#take(names, -slots);
      this.#advance();
    }
  }

  #advance(): void {
    // No request overtakes another for the same database, so that readers never starve a writer.
    const claimed = new Set<string>();
    for (const request of this.#waiting) {
      const { names, slots, grant } = request;
      const isFree = (name: string): boolean =>
        !claimed.has(name) && this.#usedSlots.of(name) + slots <= READERS_PER_DATABASE;
      if (names.every(isFree)) {
        this.#waiting.delete(request);
        this.#take(names, slots);
        grant();
      } else {
        for (const name of names) claimed.add(name);
      }
    }
  }

  #take(names: readonly string[], slots: number): void {
    for (const name of names) this.#usedSlots.add(name, slots);
  }
}

/** Such files that a crash left are removed at startup. */
const spoolFilePrefix = ".answer-";

interface SqliteOptions {
  readonly timeLimit: number;
  readonly log: Logger;
  /** The directory is used, and locked, by a gateway. */
  readonly isGuest: boolean;
}

/**
 * Creates the directory (mode 0700) and the database `main` if needed.
 *
 * @throws Error if the directory is in use or cannot be used
 */
export async function openSqliteStore(directory: string, options: SqliteOptions): Promise<Store> {
  const files = new DatabaseFiles(directory);
  if (options.isGuest) {
    return new SqliteStore(files, new WorkerPool(files.directory, options), () => {});
  }
  files.makeDirectory(options.log);
  const unlock = await lockDirectory(files.directory);
  try {
    for (const entry of readdirSync(files.directory)) {
      if (entry.startsWith(spoolFilePrefix)) rmSync(join(files.directory, entry), { force: true });
    }
    files.makeDefault();
    return new SqliteStore(files, new WorkerPool(files.directory, options), unlock);
  } catch (error) {
    unlock();
    throw error;
  }
}

const PIECE_LENGTH = 64 * 1024;

/** Creates and deletes files. Only workers run SQLite. */
class SqliteStore implements Store {
  /** Its processes read them. */
  readonly readsBytes = true;
  readonly #files: DatabaseFiles;
  readonly #pool: WorkerPool;
  readonly #unlock: () => void;
  readonly #locks = new DatabaseLocks();
  /** Held by the next long body of each database, so that only one worker waits for its locks. */
  readonly #turns = new DatabaseLocks();

  constructor(files: DatabaseFiles, pool: WorkerPool, unlock: () => void) {
    this.#files = files;
    this.#pool = pool;
    this.#unlock = unlock;
  }

  async execute({ query, limits }: QueryRequest, { signal }: AbortController): Promise<Answer> {
    const names = query.accesses.map((access) => access.database);
    const [name = ""] = names;
    const { body, hasObjects } = query.operations;
    const work = { kind: "query", body, hasObjects, limits } as const;
    if (isReadOnly(query)) {
      return this.#spooled(work, names, signal, (run) => this.#locks.shared(names, run));
    }
    const operation = query.accesses[0]?.operation;
    if (operation !== "CreateDatabase" && operation !== "DropDatabase") {
      return this.#spooled(work, names, signal, (run) => this.#locks.exclusive(names, run));
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
   * Sends rows from a file that a worker writes. The worker does not wait for the client, because
   * SQLite blocks writers while it reads.
   */
  async stream(
    { query, limits }: QueryRequest,
    stream: RowStream,
    { signal }: AbortController,
  ): Promise<void> {
    const names = query.accesses.map((access) => access.database);
    const { body, hasObjects } = query.operations;
    const work = { kind: "rows", body, hasObjects, format: stream.format, limits } as const;
    const spoolPath = this.#newSpoolPath();
    let file: FileHandle | undefined;
    let [known, sent] = [0, 0];
    const sendKnown = async (): Promise<void> => {
      file ??= await open(spoolPath);
      while (sent < known) {
        signal.throwIfAborted();
        const piece = Buffer.allocUnsafe(Math.min(PIECE_LENGTH, known - sent));
        const { bytesRead } = await file.read(piece, 0, piece.length, sent);
        if (bytesRead === 0) throw new Error("The file of an answer is too short");
        sent += bytesRead;
        stream.writeBytes(piece.subarray(0, bytesRead));
        await stream.backlog;
      }
    };
    let sending = Promise.resolve();
    let counted = 0;
    const onSpilled: OnSpilled = ({ byteLength, rows }) => {
      known = byteLength;
      stream.countRows(rows - counted);
      counted = rows;
      sending = sending.then(sendKnown);
      sending.catch(() => {});
    };
    try {
      const task = { work, spoolPath };
      const locking: Locking = (run) => this.#locks.shared(names, run);
      const { body, byteLength, counts } = await this.#run(task, names, signal, locking, onSpilled);
      const { rows = 0 } = counts;
      if (typeof body !== "number") {
        stream.countRows(rows);
        stream.writeBytes(Buffer.from(body));
      } else onSpilled({ byteLength, rows });
      await sending;
    } finally {
      await sending.catch(() => {});
      await file?.close();
      await rm(spoolPath, { force: true });
    }
  }

  async readSchema(path: SchemaPath, { signal }: AbortController): Promise<Answer> {
    const { database } = path;
    if (database === undefined) {
      return jsonAnswer({ status: "success", data: { databases: this.#files.names() } });
    }
    const work = { kind: "schema", path } as const;
    return this.#spooled(work, [database], signal, (run) => this.#locks.shared([database], run));
  }

  async isUp(): Promise<boolean> {
    if (this.#pool.isStuck) return false;
    try {
      return this.#files.has(defaultDatabase);
    } catch {
      // Their directory is gone or cannot be read.
      return false;
    }
  }

  async close(): Promise<void> {
    await this.#pool.close();
    this.#unlock();
  }

  #drop(name: string): void {
    this.#files.requireDroppable(name);
    this.#pool.forget(name);
    this.#files.remove(name);
  }

  /**
   * Removes the file of a long answer even if the worker was killed. That may take seconds, so the
   * locks are released before. A short answer has none.
   */
  async #spooled(
    work: Work,
    names: readonly string[],
    signal: AbortSignal,
    locking: Locking,
  ): Promise<Answer> {
    const spoolPath = this.#newSpoolPath();
    let hasFile = true;
    try {
      const answer = await this.#run({ work, spoolPath }, names, signal, locking);
      hasFile = typeof answer.body === "number";
      return hasFile ? { ...answer, body: openSync(spoolPath, "r") } : answer;
    } finally {
      // A file that is left is removed at the next start.
      if (hasFile) await rm(spoolPath, { force: true }).catch(() => {});
    }
  }

  /** Long bodies are parsed before the locks are taken. */
  async #run(
    task: Task,
    names: readonly string[],
    signal: AbortSignal,
    locking: Locking,
    onSpilled: OnSpilled = () => {},
  ): Promise<Answer> {
    if (!("body" in task.work) || task.work.body.length < LONG_BODY) {
      return locking(() => this.#pool.run(task, signal, onSpilled));
    }
    const { answer } = await this.#turns.exclusive(names, () =>
      this.#pool.runParsed(task, signal, onSpilled, locking),
    );
    return answer;
  }

  #newSpoolPath(): string {
    return join(this.#files.directory, spoolFilePrefix + randomUUID());
  }
}
