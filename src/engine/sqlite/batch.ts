import type { TableOperation } from "../../query/operation-types.ts";
import type { LimitCounter } from "../limits.ts";
import type { Spool } from "../spool.ts";
import type { Databases, Session } from "./databases.ts";
import { refusalOf } from "./failures.ts";
import type { DatabaseHandle } from "./handle.ts";
import { perform } from "./operations.ts";
import { transaction } from "./transaction.ts";

/**
 * Carries out a Batch as one transaction over all its databases and writes the JSON answer to
 * the spool.
 *
 * Throws `EngineRefusal`, which names the element that it is about.
 */
export function executeBatch(
  databases: Databases,
  operations: readonly TableOperation[],
  spool: Spool,
  counter: LimitCounter,
): void {
  const session = openSession(databases, operations);
  try {
    spool.write(`{"status":"success","data":`);
    transaction(session.connection, () => {
      performAll(session, operations, spool, counter);
      spool.write("]}");
      // Its room is taken before the commit: no committed Batch is reported as failed for it.
      spool.flush();
    });
  } finally {
    session.close();
  }
}

/** The databases of a Batch; one that is alone is reached by the connection that is kept. */
function openSession(databases: Databases, operations: readonly TableOperation[]): Session {
  const places = operations.map(({ fields }) => fields.database);
  const names = [...new Set(places)];
  for (const name of names) {
    inElement(places.indexOf(name), () => databases.requireExisting(name));
  }
  const [first, ...others] = names;
  if (first === undefined || others.length > 0) return databases.openTogether(names);
  const handle = databases.open(first);
  return { connection: handle.connection, handles: new Map([[first, handle]]), close() {} };
}

function performAll(
  session: Session,
  operations: readonly TableOperation[],
  spool: Spool,
  counter: LimitCounter,
): void {
  for (const [index, operation] of operations.entries()) {
    spool.write(index === 0 ? "[" : ",");
    const handle = handleOf(session, operation);
    inElement(index, () => perform(handle, operation, spool, { counter, element: index }));
  }
}

/** Does the work for one element of a Batch; a refusal then says which. */
function inElement(index: number, work: () => void): void {
  try {
    work();
  } catch (error) {
    throw refusalOf(error)?.at(`Batch[${index}]`) ?? error;
  }
}

function handleOf(session: Session, operation: TableOperation): DatabaseHandle {
  const handle = session.handles.get(operation.fields.database);
  if (handle === undefined) throw new Error("A Batch reached past its session");
  return handle;
}
