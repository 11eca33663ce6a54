import { existsSync } from "node:fs";
import type { ReloadEvent } from "../access/access-rules.ts";
import { ownerOf } from "../files/permissions.ts";
import { watchFile } from "../files/watch.ts";
import type { Audit } from "../observe/audit.ts";
import type { AuditedChange, Author } from "../observe/audit-line.ts";
import type { Log } from "../observe/log.ts";
import { addNote, type ChangeNote, takeNotes } from "./change-notes.ts";
import { describeDiff } from "./change-records.ts";

/** Changes that one line names. */
const NAMED = 100;
/** Milliseconds after which a state of the access file that no program has noted was made by hand. */
const NOTED_WITHIN_MS = 1500;
/** Versions that are remembered. */
const REMEMBERED = 1000;

export interface JournalOptions {
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
