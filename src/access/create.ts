import { existsSync } from "node:fs";
import { replaceFile } from "../files/atomic.ts";
import { withLock } from "../files/lock.ts";
import type { Change } from "./change.ts";
import { editText } from "./edit.ts";
import { parseAccessFile } from "./parse.ts";
import type { Snapshot } from "./snapshot.ts";

const header = `# Who may do what. Edit this file while the gateway runs: a change is in force within a second.
#
# [[users]]  username, email, password_hash (made by: gatehouse hash-password),
#            disabled = true, tokens_valid_after = epoch seconds
# [[acl]]    username, database ("*" for every database), role: Owner, DbAdmin, ReadWrite, ReadOnly
#            The entry for a named database wins over the entry for "*".
`;

/**
 * Writes a new access file (0600) that holds what `changes` say.
 *
 * @param prepare is done right before, and only if there is none yet
 * @returns its snapshot, or undefined if there is one already: then nothing is written
 */
export async function createAccessFile(
  file: string,
  changes: readonly Change[],
  prepare: () => Promise<void> = async () => {},
): Promise<Snapshot | undefined> {
  const text = editText(header, { users: [], grants: [] }, changes);
  const snapshot = parseAccessFile(text, file);
  return withLock(file, async () => {
    if (existsSync(file)) return undefined;
    await prepare();
    await replaceFile(file, text);
    return snapshot;
  });
}
