import type { TableOperation } from "../../query/operation-types.ts";
import { EngineRefusal } from "../refusal.ts";
import type { Mode } from "../remote/dialect.ts";
import type { PostgresSession } from "./session.ts";

const beginnings: Record<Mode, string> = {
  "read only": "begin read only",
  "read committed": "begin isolation level read committed",
  "snapshot, read only": "begin isolation level repeatable read, read only",
  serializable: "begin isolation level serializable",
};

/** A server that hears nothing of us for so long gives the transaction up, in milliseconds. */
const idleLimit = 60_000;

/** Begins a transaction whose statements take `timeLimit` milliseconds at the most. */
export async function begin(
  session: PostgresSession,
  mode: Mode,
  timeLimit: number,
): Promise<void> {
  await session.command([beginnings[mode], ...settings(timeLimit)].join("; "));
}

/**
 * Said in each transaction, and not to the connection, since that may lead through a pooler to
 * another server process each time.
 */
function settings(timeLimit: number): string[] {
  return [
    `set local statement_timeout = ${timeLimit}`,
    `set local idle_in_transaction_session_timeout = ${idleLimit}`,
    "set local timezone = 'UTC'",
    "set local datestyle = 'ISO, YMD'",
    "set local bytea_output = 'hex'",
    "set local extra_float_digits = 3",
  ];
}

/**
 * Refuses a Batch over several databases: PostgreSQL commits in each by itself, so nobody could take
 * back what is done in one if another fails.
 *
 * Throws `batch_not_atomic`.
 */
export function requireOneDatabase(operations: readonly TableOperation[]): void {
  const [first, ...others] = operations.map(({ fields }) => fields.database);
  const index = others.findIndex((database) => database !== first);
  if (index < 0) return;
  throw new EngineRefusal(
    "batch_not_atomic",
    `Batch[${index + 1}]: PostgreSQL cannot carry out operations in ${first} and ${others[index]} together, all or nothing; send a Batch for each database`,
  );
}
