import { existsSync } from "node:fs";
import { appendFile, readFile, rm } from "node:fs/promises";
import path from "node:path";
import * as z from "zod";
import type { ReloadEvent } from "../access/access-rules.ts";
import type { AccessDiff } from "../access/diff.ts";
import type { Grant } from "../access/grant.ts";
import type { Change } from "../access/record-change.ts";
import { giveToDirectoryOwner, ownerOf } from "../files/guarded.ts";
import { withLock } from "../files/lock.ts";
import { watchFile } from "../files/watch.ts";
import type { Audit } from "../observe/audit.ts";
import { type AuditedChange, type Author, auditedChange, author } from "../observe/audit-line.ts";
import type { Log } from "../observe/log.ts";

/** Changes of users, grants and boundaries as the audit tells them. */

/** The names of an entry, as decisions have them: `main`, or `main.tickets` for each of its tables. */
export function entryNames({ database, tables }: Grant): string[] {
  return tables?.map((table) => `${database}.${table}`) ?? [database];
}

function ofGrant(change: string, grant: Grant): AuditedChange {
  const { username: user, role } = grant;
  return { change, user, entry: entryNames(grant).join(","), role };
}

const fieldNames: Readonly<Record<string, string>> = {
  passwordHash: "password",
  tokensValidAfter: "tokens_valid_after",
};

function describe(change: Change): AuditedChange {
  switch (change.kind) {
    case "add-user":
      return { change: "user added", user: change.user.username };
    case "remove-user":
      return { change: "user removed", user: change.username };
    case "update-user": {
      const fields = Object.keys(change.update).map((key) => fieldNames[key] ?? key);
      return { change: "user changed", user: change.username, fields };
    }
    case "add-grant":
      return ofGrant("grant added", change.grant);
    case "set-grant":
      return ofGrant("grant changed", change.grant);
    case "remove-grant":
      return ofGrant("grant removed", change.grant);
  }
}

/** What a program was asked to change. */
export function describeChanges(changes: readonly Change[]): AuditedChange[] {
  return changes.map(describe);
}

/** A grant of a difference, which reads `user place role`. */
function ofWords(change: string, words: string): AuditedChange {
  const [user = "", ...rest] = words.split(" ");
  const role = rest.at(-1) ?? "";
  return { change, user, entry: rest.slice(0, -1).join(" "), role };
}

/** What differs after a file was edited. */
export function describeDiff(diff: AccessDiff): AuditedChange[] {
  const users = (change: string, names: readonly string[]) =>
    names.map((user) => ({ change, user }));
  const grants = (change: string, names: readonly string[]) =>
    names.map((words) => ofWords(change, words));
  const boundaries = (change: string, names: readonly string[]) =>
    names.map((boundary) => ({ change, boundary }));
  return [
    ...users("user added", diff.usersAdded),
    ...users("user removed", diff.usersRemoved),
    ...users("user changed", diff.usersChanged),
    ...grants("grant added", diff.grantsAdded),
    ...grants("grant removed", diff.grantsRemoved),
    ...grants("grant raised", diff.grantsRaised),
    ...grants("grant lowered", diff.grantsLowered),
    ...grants("grant changed", diff.grantsChanged),
    ...boundaries("boundary added", diff.boundariesAdded),
    ...boundaries("boundary removed", diff.boundariesRemoved),
  ];
}

/**
 * Notes of changes on their way into the audit. Commands, which work also while no gateway runs, and
 * other processes of a gateway append a note of each change to a file of the service directory; the
 * gateway's first process writes them into the audit. By them it also knows which states of the
 * access file no program has made: those are edits by hand.
 */

const noteShape = z.object({
  /** When it was made. */
  at: z.iso.datetime(),
  /** The version of the access file that it has made. */
  accessVersion: z.string().optional(),
  /** Left out where the audit has it already. */
  author: author.optional(),
  changes: z.array(auditedChange).optional(),
});
type ChangeNote = z.infer<typeof noteShape>;

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
async function takeNotes(file: string): Promise<ChangeNote[]> {
  return withLock(file, async () => {
    const text = await readFile(file, "utf8").catch(() => "");
    if (text !== "") await rm(file);
    return text.split("\n").flatMap(parseNote);
  });
}

/** Changes that one line names. */
const NAMED = 100;
/** Milliseconds after which a state of the access file that no program has noted was made by hand. */
const NOTED_WITHIN_MS = 1500;
/** Versions that are remembered. */
const REMEMBERED = 1000;

interface JournalOptions {
  readonly audit: Audit;
  readonly log: Log;
  readonly accessFile: string;
  /** Where commands and other processes leave their notes. */
  readonly notes: string;
  /** True for the one process of a gateway that writes what is noted. */
  readonly isFirst: boolean;
}

/** Writes a line for each change that no request's line tells of. */
export interface ChangeJournal {
  /** Says that the audit has, or will have, who made a version of the access file. */
  noteVersion(accessVersion: string): void;
  /** Writes the line of a change; none for nothing. */
  write(author: Author, changes: readonly AuditedChange[], accessVersion?: string): void;
  /**
   * Writes what somebody else has changed. An edit of the access file is taken for one by hand,
   * unless a program has noted it by then.
   */
  onReload(event: ReloadEvent): void;
  /** Writes what is not written yet. */
  close(): Promise<void>;
}

/** Opens the journal of a process. */
export function openChangeJournal(options: JournalOptions): ChangeJournal {
  const { audit, log, accessFile, notes, isFirst } = options;
  const versions = new Set<string>();
  const waiting = new Map<NodeJS.Timeout, () => void>();

  function remember(version: string): void {
    versions.add(version);
    const [oldest] = versions;
    if (versions.size > REMEMBERED && oldest !== undefined) versions.delete(oldest);
  }

  function write(author: Author, all: readonly AuditedChange[], version?: string, at?: string) {
    audit.event("change", {
      ...(at === undefined ? {} : { at }),
      author,
      changes: all.slice(0, NAMED),
      ...(all.length > NAMED ? { changeCount: all.length } : {}),
      ...(version === undefined ? {} : { accessVersion: version }),
    });
  }

  function take({ at, author, changes = [], accessVersion }: ChangeNote): void {
    if (accessVersion !== undefined) remember(accessVersion);
    if (author !== undefined) write(author, changes, accessVersion, at);
  }

  async function drain(): Promise<void> {
    if (!existsSync(notes)) return;
    try {
      for (const note of await takeNotes(notes)) take(note);
    } catch (error) {
      log.error({ file: notes, err: error }, "changes by commands are not in the audit yet");
    }
  }

  const watch = isFirst ? watchFile(notes, () => void drain()) : undefined;
  if (isFirst) void drain();

  return {
    noteVersion(accessVersion) {
      if (isFirst) remember(accessVersion);
      else {
        addNote(notes, { accessVersion }).catch((error: unknown) =>
          log.error({ file: notes, err: error }, "a change cannot be told to the first process"),
        );
      }
    },
    write(author, changes, version) {
      if (changes.length > 0) write(author, changes, version);
    },
    onReload(event) {
      if (!isFirst || event.kind === "failed" || event.isOwn) return;
      const { snapshot, diff } = event;
      if (event.author !== undefined) {
        write(event.author, describeDiff(diff), snapshot.version);
        return;
      }
      // By now: it may have another owner later.
      const author: Author = { kind: "file", name: ownerOf(accessFile) };
      const judge = () => {
        if (!versions.has(snapshot.version)) write(author, describeDiff(diff), snapshot.version);
      };
      const timer = setTimeout(() => {
        waiting.delete(timer);
        void drain().then(judge);
      }, NOTED_WITHIN_MS);
      waiting.set(timer, judge);
    },
    async close() {
      await watch?.close();
      if (isFirst) await drain();
      for (const [timer, judge] of waiting) {
        clearTimeout(timer);
        judge();
      }
    },
  };
}
