import type { TableOperation } from "../../query/shape.ts";
import { EngineRefusal } from "../refusal.ts";

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
