import type { DatabaseSync } from "node:sqlite";

/**
 * Runs `work` as one transaction: all of it is durable when this resolves, and none of it stays
 * when it rejects.
 */
export async function transaction(
  connection: DatabaseSync,
  work: () => Promise<void>,
): Promise<void> {
  // "immediate" takes the write lock at once, so that a busy file refuses before work is done.
  connection.exec("begin immediate");
  try {
    await work();
    connection.exec("commit");
  } catch (error) {
    // Some errors, such as a full disk, have rolled back already.
    if (connection.isTransaction) connection.exec("rollback");
    throw error;
  }
}
