import type { TableOperation } from "../../query/shape.ts";
import { EngineRefusal } from "../refusal.ts";

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
