/**
 * Notes of changes on their way into the audit. Commands, which work also while no gateway runs, and
 * other processes of a gateway append a note of each change to a file of the service directory; the
 * gateway's first process writes them into the audit. By them it also knows which states of the
 * access file no program has made: those are edits by hand.
 */
import { appendFile, readFile, rm } from "node:fs/promises";
import path from "node:path";
import * as z from "zod";
import { withLock } from "../files/lock.ts";
import { giveToDirectoryOwner } from "../files/permissions.ts";
import { auditedChange, author } from "../observe/audit-line.ts";

const noteShape = z.object({
  /** When it was made. */
  at: z.iso.datetime(),
  /** The version of the access file that it has made. */
  accessVersion: z.string().optional(),
  /** Left out where the audit has it already. */
  author: author.optional(),
  changes: z.array(auditedChange).optional(),
});
export type ChangeNote = z.infer<typeof noteShape>;

/** Where notes stand until they are in the audit. */
export function changeNotesOf(serviceDirectory: string): string {
  return path.join(serviceDirectory, "audit_pending");
}

/** Adds a note. @throws the error of the file system, or of the lock */
export async function addNote(file: string, note: Omit<ChangeNote, "at">): Promise<void> {
  const line = `${JSON.stringify({ at: new Date().toISOString(), ...note })}\n`;
  await withLock(file, async () => {
    await appendFile(file, line, { mode: 0o600 });
    giveToDirectoryOwner(file);
  });
}

function parseNote(line: string): ChangeNote[] {
  try {
    const { data } = noteShape.safeParse(JSON.parse(line));
    return data === undefined ? [] : [data];
  } catch {
    // Cut by a crash.
    return [];
  }
}

/** Takes all notes away, the oldest first. @throws the error of the file system, or of the lock */
export async function takeNotes(file: string): Promise<ChangeNote[]> {
  return withLock(file, async () => {
    const text = await readFile(file, "utf8").catch(() => "");
    if (text !== "") await rm(file);
    return text.split("\n").flatMap(parseNote);
  });
}
