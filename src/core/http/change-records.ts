import { existsSync } from "node:fs";
import { rm } from "node:fs/promises";
import path from "node:path";
import * as z from "zod";
import type { ReloadEvent, VersionStep } from "../access/access-rules.ts";
import type { AccessDiff } from "../access/diff.ts";
import { type Grant, type Group, groupOf, holderText } from "../access/grant.ts";
import type { Change } from "../access/record-change.ts";
import { isoTime } from "../base/clock.ts";
import { appendWhole, ownerName, parseLine, readGuardedBytes } from "../base/files/guarded.ts";
import { withLock } from "../base/files/lock.ts";
import { followFiles } from "../base/files/watch.ts";
import { type Audit, appendChange } from "../observe/audit.ts";
import { type AuditedChange, type Author, auditedChange, author } from "../observe/audit-line.ts";
import type { Log } from "../observe/log.ts";
import { placeName } from "../query/names.ts";

/** `main`, or `main.tickets` for each of its tables. */
export function entryNames({ database, tables }: Grant): string[] {
  return tables?.map((table) => placeName(database, table)) ?? [placeName(database)];
}

function ofGrant(change: string, grant: Grant): AuditedChange {
  const group = groupOf(grant.holder);
  const holder = group === undefined ? { user: holderText(grant.holder) } : { group };
  return { change, ...holder, entry: entryNames(grant).join(","), role: grant.role };
}

function ofGroup(change: string, { name, members }: Group): AuditedChange {
  return { change, group: name, members };
}

function ofChangedGroup(group: Group, left: readonly string[] = []): AuditedChange {
  return { ...ofGroup("group changed", group), ...(left.length === 0 ? {} : { left }) };
}

function ofRemovedGroup({ name, members }: Group): AuditedChange {
  return { change: "group removed", group: name, ...(members.length > 0 && { left: members }) };
}

const fieldNames: Readonly<Record<string, string>> = {
  passwordHash: "password",
  sameAs: "same_as",
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
    case "add-group":
      return ofGroup("group added", change.group);
    case "update-group":
      return ofChangedGroup(change.group, change.left);
    case "remove-group":
      return ofRemovedGroup(change.group);
    case "add-grant":
      return ofGrant("grant added", change.grant);
    case "set-grant":
      return ofGrant("grant changed", change.grant);
    case "remove-grant":
      return ofGrant("grant removed", change.grant);
  }
}

export function describeChanges(changes: readonly Change[]): AuditedChange[] {
  return changes.map(describe);
}

export function describeDiff(diff: AccessDiff): AuditedChange[] {
  return [
    ...diff.usersAdded.map((user) => ({ change: "user added", user })),
    ...diff.usersRemoved.map((user) => ({ change: "user removed", user })),
    ...diff.usersChanged.map((user) => ({ change: "user changed", user })),
    ...diff.groupsAdded.map((group) => ofGroup("group added", group)),
    ...diff.groupsRemoved.map(ofRemovedGroup),
    ...diff.groupsChanged.map((group) => ofChangedGroup(group, group.left)),
    ...diff.grantsAdded.map((grant) => ofGrant("grant added", grant)),
    ...diff.grantsRemoved.map((grant) => ofGrant("grant removed", grant)),
    ...diff.grantsRaised.map((grant) => ofGrant("grant raised", grant)),
    ...diff.grantsLowered.map((grant) => ofGrant("grant lowered", grant)),
    ...diff.grantsChanged.map((grant) => ofGrant("grant changed", grant)),
    ...diff.boundariesAdded.map((boundary) => ({ change: "boundary added", boundary })),
    ...diff.boundariesRemoved.map((boundary) => ({ change: "boundary removed", boundary })),
  ];
}

/** Of the changes in one audit line. */
const MAX_LISTED = 100;

function changeFields(
  author: Author,
  all: readonly AuditedChange[],
  version?: string,
  at?: string,
) {
  return {
    ...(at === undefined ? {} : { at }),
    author,
    changes: all.slice(0, MAX_LISTED),
    ...(all.length > MAX_LISTED ? { changeCount: all.length } : {}),
    ...(version === undefined ? {} : { accessVersion: version }),
  };
}

/**
 * Notes for the gateway's first process, in a file of the service directory. They tell which
 * versions of the access file a program is about to write; all others are manual edits. A command
 * whose audit is the gateway's standard output also leaves its changes here, which the gateway then
 * writes.
 */

const noteShape = z.object({
  at: z.iso.datetime(),
  accessVersion: z.string().optional(),
  author: author.optional(),
  changes: z.array(auditedChange).optional(),
  step: z.object({ from: z.string(), to: z.string() }).optional(),
  /** A user whose failed logins a command has cleared. */
  unlocked: z.string().optional(),
});
type ChangeNote = z.infer<typeof noteShape>;

export function changeNotesPath(serviceDirectory: string): string {
  return path.join(serviceDirectory, "audit_pending");
}

/**
 * Records the changes of a command: in the audit file, or else in a note for the gateway.
 *
 * @param files.audit the gateway's audit file, if there is one
 * @param versions.written the version of the access file that the command wrote, if it did
 * @param versions.inForce the version that it found, if it wrote none and could read the file
 * @throws the error of the file system or of the lock
 */
export async function recordCommand(
  { audit, notes }: { readonly audit: string | undefined; readonly notes: string },
  author: Author,
  changes: readonly AuditedChange[],
  { written, inForce }: Partial<Record<"written" | "inForce", string | undefined>> = {},
): Promise<void> {
  // `/dev/stderr` and the like are another file in the gateway.
  if (audit !== undefined && !/^\/(?:dev|proc)\//.test(audit)) {
    return appendChange(audit, changeFields(author, changes, written ?? inForce, isoTime()));
  }
  const version = written === undefined ? {} : { accessVersion: written };
  await addNote(notes, { ...version, author, changes: [...changes] });
}

/** Tells the running gateway that a program is about to write a version of the access file. */
export function noteStep(notes: string, step: VersionStep): Promise<void> {
  return addNote(notes, { step });
}

/** Asks the running gateway to clear the failed logins of a user. */
export function noteUnlocked(notes: string, username: string): Promise<void> {
  return addNote(notes, { unlocked: username });
}

async function addNote(file: string, note: Omit<ChangeNote, "at">): Promise<void> {
  const line = `${JSON.stringify({ at: new Date().toISOString(), ...note })}\n`;
  await withLock(file, () => appendWhole(file, line));
}

/** Removes the notes only after `write`, so that a crash loses none. */
async function takeNotes(
  file: string,
  write: (notes: readonly ChangeNote[]) => Promise<void>,
): Promise<void> {
  await withLock(file, async () => {
    if (!existsSync(file)) return;
    const text = String(await readGuardedBytes(file, { checkRead: false }));
    // A crash may have cut off a line.
    await write(text.split("\n").flatMap((line) => parseLine(noteShape, line) ?? []));
    await rm(file);
  });
}

/** A version that a program wrote longer ago was restored by hand. */
const NOTE_LASTS_MS = 5000;
const REMEMBERED = 1000;

export type ChangeJournal = ReturnType<typeof openChangeJournal>;

/**
 * Writes audit lines for changes that no request's line contains.
 *
 * @param options.isFirst true for the one process of a gateway that writes notes to the audit
 */
export function openChangeJournal(options: {
  readonly audit: Audit;
  readonly log: Log;
  readonly accessFile: string;
  readonly notes: string;
  readonly isFirst: boolean;
  readonly unlock: (username: string) => void;
}) {
  const { audit, log, accessFile, notes, isFirst, unlock } = options;
  /** What a program noted about each version, and when. */
  const versions = new Map<string, { readonly from: string; readonly notedAt: number }>();
  let judging = Promise.resolve();

  function remember({ from, to }: VersionStep): void {
    versions.delete(to);
    versions.set(to, { from, notedAt: performance.now() });
    const [oldest = ""] = versions.keys();
    if (versions.size > REMEMBERED) versions.delete(oldest);
  }

  /** True if only programs made the changes between two versions. */
  function isNoted(from: string, to: string, since: number): boolean {
    const passed = new Set<string>();
    for (let at = to; at !== from; ) {
      const step = versions.get(at);
      if (step === undefined || step.notedAt < since || passed.has(at)) return false;
      passed.add(at);
      at = step.from;
    }
    return true;
  }

  function write(...change: Parameters<typeof changeFields>): void {
    audit.event("change", changeFields(...change));
  }

  async function drain(): Promise<void> {
    if (!existsSync(notes)) return;
    await takeNotes(notes, async (taken) => {
      for (const { at, author, changes = [], accessVersion, step, unlocked } of taken) {
        if (unlocked !== undefined) unlock(unlocked);
        if (step !== undefined) remember(step);
        if (author !== undefined) write(author, changes, accessVersion, at);
      }
      if (taken.some(({ author }) => author !== undefined)) await audit.flush();
    });
  }

  const following = followFiles(isFirst ? [notes] : [], drain, (error) =>
    log.error({ file: notes, err: error }, "changes by commands are not in the audit yet"),
  );
  if (isFirst) void following.reload();

  return {
    /** Called before the version is written, so that no process reads it unnoted. */
    async noteStep(step: VersionStep | undefined): Promise<void> {
      if (step === undefined) return;
      if (isFirst) return remember(step);
      await noteStep(notes, step).catch((error: unknown) =>
        log.error(
          { file: notes, err: error },
          "a change could not be reported to the first process",
        ),
      );
    },
    write(author: Author, changes: readonly AuditedChange[], version?: string): void {
      if (changes.length > 0) write(author, changes, version);
    },
    /**
     * Writes changes made elsewhere. An edit of the access file counts as manual unless programs
     * noted all of it.
     */
    onReload(event: ReloadEvent): void {
      if (!isFirst || event.kind === "failed" || event.isOwn) return;
      const { previous, snapshot, diff } = event;
      if (event.author !== undefined) {
        write(event.author, describeDiff(diff), snapshot.version);
        return;
      }
      // Read now, because the file may have another owner later.
      const author: Author = { kind: "file", name: ownerName(accessFile) };
      const notedSince = performance.now() - NOTE_LASTS_MS;
      judging = judging.then(following.reload).then(() => {
        if (isNoted(previous.version, snapshot.version, notedSince)) return;
        write(author, describeDiff(diff), snapshot.version);
      });
    },
    async close(): Promise<void> {
      await following.close();
      await judging;
      if (isFirst) await following.reload();
    },
  };
}
