import type { DatabaseSync } from "node:sqlite";

/**
 * Runs `work` as one transaction: all of it is durable when this returns, and none of it stays
 * when it throws, or if its end is said to be a rollback.
 */
export function transaction(
  connection: DatabaseSync,
  work: () => void,
  end: "commit" | "rollback" = "commit",
): void {
  // "immediate" takes the write lock at once, so that a busy file refuses before work is done.
  connection.exec("begin immediate");
  try {
    work();
    connection.exec(end);
  } catch (error) {
    // Some errors, such as a full disk, have rolled back already.
    if (connection.isTransaction) connection.exec("rollback");
    throw error;
  }
}
