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
