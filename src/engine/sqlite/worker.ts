import { closeSync, openSync } from "node:fs";
import { Worker } from "node:worker_threads";
import { runAtOnce } from "../../core/base/cooperative-scheduling.ts";
import { leaveSignalsToParent, openParentChannel, siblingModule } from "../../core/base/ipc.ts";
import type { QueryLimit } from "../../core/query/limits.ts";
import { changesIn, type ReadOperations, readOperations } from "../../core/query/query.ts";
import type { TableOperation } from "../../core/query/tree.ts";
import { LimitCounter } from "../limits.ts";
import { describeSchema, openContext, performAll, performPreview, read } from "../perform.ts";
import { type Answer, Spool } from "../spool.ts";
import { isOfTables, isReading } from "../sql/answers.ts";
import { writeLongCells } from "../sql/values.ts";
import type { SchemaPath } from "../store.ts";
import { Databases } from "./databases.ts";
import { operationsIn } from "./dialect.ts";
import { toRefusal } from "./failures.ts";
import { doubleOrInteger } from "./kinds.ts";
import {
  type EngineCalls,
  type Task,
  type TaskFailure,
  taskErrors,
  type WorkerCalls,
} from "./protocol.ts";
import type { SqliteSession } from "./statements.ts";

const SPILL_REPORT_BYTES = 1024 * 1024;

const [directory, standing] = process.argv.slice(2);
if (directory === undefined) throw new Error("A worker requires a directory");

leaveSignalsToParent();
new Worker(siblingModule(import.meta.url, "watchdog")).unref();

const databases = new Databases(directory, standing === "guest");

interface ParsedTask extends Task {
  readonly parsed: ReadOperations;
}

function parsedTask(task: Task): ParsedTask {
  const { work } = task;
  const parsed =
    "body" in work
      ? readOperations(Buffer.from(work.body), doubleOrInteger, work.hasObjects)
      : { isBatch: false, operations: [] };
  return { ...task, parsed };
}

let parsedBefore: ParsedTask | undefined;

function parse(task: Task): undefined {
  parsedBefore = parsedTask(task);
  for (const { fields } of parsedBefore.parsed.operations) runAtOnce(writeLongCells(fields));
}

function takeParsed(): ParsedTask {
  const task = parsedBefore;
  parsedBefore = undefined;
  if (task === undefined) throw new Error("No task was parsed");
  return task;
}

async function run(task?: Task): Promise<Answer> {
  const { work, spoolPath, parsed } = task === undefined ? takeParsed() : parsedTask(task);
  const stream =
    work.kind === "rows" ? { format: work.format, onSpilled: spillReporter() } : undefined;
  const spool = new Spool(() => openSync(spoolPath, "wx", 0o600), stream);
  try {
    if (work.kind === "query") await executeQuery(parsed, work.limits, spool);
    else if (work.kind === "rows") await executeSelect(parsed, work.limits, spool);
    else await executeSchema(work.path, spool);
    const answer = spool.finish();
    if (typeof answer.body === "number") closeSync(answer.body);
    return answer;
  } catch (error) {
    const refusal = toRefusal(error);
    throw (work.kind === "query" ? refusal?.quote(Buffer.from(work.body)) : refusal) ?? error;
  } finally {
    spool.close();
  }
}

async function executeQuery(
  { isBatch, operations }: ReadOperations,
  limits: readonly QueryLimit[],
  spool: Spool,
): Promise<void> {
  const [only] = operations;
  if (only?.name === "Preview") {
    const { fields } = only;
    const counter = new LimitCounter(limits);
    return inSession(changesIn(fields), fields.Batch !== undefined, (session) => {
      const work = () => performPreview(operationsIn(session), session, fields, spool, counter);
      return transaction(session, work, "rollback");
    });
  }
  const work = { isBatch, operations: operations.filter(isOfTables), limits };
  const onlyReads = work.operations.every(isReading);
  await inSession(work.operations, isBatch, (session) => {
    const perform = async (): Promise<void> => {
      await performAll(operationsIn(session), session, work, spool);
      // Reserves disk space before the commit, so that a full disk never reports a committed query
      // as failed.
      spool.flush();
      // The message is delivered although the commit then blocks this process.
      if (!onlyReads) engine.tell("committing", undefined);
    };
    if (!onlyReads) return transaction(session, perform);
    return isBatch ? readTransaction(session, perform) : perform();
  });
}

/** Runs `work` with a connection to the databases of these operations. */
async function inSession(
  operations: readonly TableOperation[],
  isBatch: boolean,
  work: (session: SqliteSession) => Promise<void>,
): Promise<void> {
  const databaseNames = operations.map(({ fields }) => fields.database);
  const names = [...new Set(databaseNames)];
  // Opening requires it too, but does not know the element.
  for (const name of isBatch ? names : []) {
    try {
      databases.requireExisting(name);
    } catch (error) {
      throw toRefusal(error)?.atElement(databaseNames.indexOf(name)) ?? error;
    }
  }
  const [first = ""] = names;
  const changed = operations.flatMap((one) => (isReading(one) ? [] : one.fields.database));
  const session =
    names.length > 1 ? databases.openTogether(names, new Set(changed)) : databases.open(first);
  try {
    await work(session);
  } finally {
    if (names.length > 1) session.connection.close();
  }
}

/** Sees one state, beside other readers. */
async function readTransaction(
  { connection }: SqliteSession,
  work: () => Promise<void>,
): Promise<void> {
  connection.exec("begin");
  try {
    await work();
  } finally {
    if (connection.isTransaction) connection.exec("rollback");
  }
}

async function transaction(
  session: SqliteSession,
  work: () => Promise<void>,
  end: "commit" | "rollback" = "commit",
): Promise<void> {
  const { connection } = session;
  if (databases.isGuest) return readTransaction(session, work);
  // Takes the write lock at once, so that a busy file refuses before any work is done.
  connection.exec("begin immediate");
  try {
    await work();
    connection.exec(end);
  } catch (error) {
    // Some errors, such as a full disk, have already rolled back.
    if (connection.isTransaction) connection.exec("rollback");
    throw error;
  }
}

async function executeSelect(
  parsed: ReadOperations,
  limits: readonly QueryLimit[],
  spool: Spool,
): Promise<void> {
  const [operation] = parsed.operations.filter(isReading);
  if (operation === undefined) throw new Error("Only a Select can be streamed");
  const { database } = operation.fields;
  const session = databases.open(database);
  const operations = operationsIn(session);
  const context = openContext(operations, session, database, new LimitCounter(limits));
  await read(operations, context, operation.fields, spool);
}

async function executeSchema({ database = "", table }: SchemaPath, spool: Spool): Promise<void> {
  const session = databases.open(database);
  const data = await describeSchema(operationsIn(session), session, database, table);
  spool.write(JSON.stringify({ status: "success", data }));
}

function spillReporter(): (byteLength: number, rows: number) => void {
  let next = 0;
  return (byteLength, rows) => {
    if (byteLength < next) return;
    next = byteLength + SPILL_REPORT_BYTES;
    engine.tell("spilled", { byteLength, rows });
  };
}

const engine = openParentChannel<EngineCalls, WorkerCalls, TaskFailure>(
  { parse, run, forget: (database) => void databases.forget(database) },
  taskErrors,
);

process.once("disconnect", () => {
  databases.close();
  process.exit();
});
