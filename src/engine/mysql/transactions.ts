import type { TableOperation } from "../../query/operation-types.ts";
import { EngineRefusal } from "../refusal.ts";
import type { Mode } from "../remote/dialect.ts";
import type { MysqlSession } from "./session.ts";

/** The connection's own isolation is read committed. */
const beginnings: Record<Mode, readonly string[]> = {
  "read only": ["start transaction read only"],
  "read committed": ["start transaction"],
  "snapshot, read only": [
    "set transaction isolation level repeatable read",
    "start transaction with consistent snapshot, read only",
  ],
  serializable: ["set transaction isolation level serializable", "start transaction"],
};

/** Begins a transaction; how long its statements may take has been said to the connection. */
export async function begin(session: MysqlSession, mode: Mode): Promise<void> {
  for (const words of beginnings[mode]) await session.command(words);
}

/**
 * Refuses a Batch that makes or drops a table and does something else too: MySQL commits what came
 * before a definition, so nobody could take it back.
 *
 * Throws `batch_not_atomic`.
 */
export function requireAtomic(operations: readonly TableOperation[]): void {
  const index = operations.findIndex(({ name }) => name === "CreateTable" || name === "DropTable");
  if (index < 0 || operations.length === 1) return;
  throw new EngineRefusal(
    "batch_not_atomic",
    `Batch[${index}]: MySQL cannot make or drop a table together with other operations, all or nothing; send it by itself`,
  );
}
