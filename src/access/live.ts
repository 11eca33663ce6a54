import { readGuarded, UnsafeFileError } from "../files/guarded.ts";
import { watchFile } from "../files/watch.ts";
import { type AccessDiff, diffSnapshots } from "./diff.ts";
import { AccessFileError, parseAccessFile } from "./parse.ts";
import type { Snapshot } from "./snapshot.ts";

/** What a reload came to. */
export type ReloadEvent =
  | { readonly kind: "loaded"; readonly snapshot: Snapshot; readonly diff: AccessDiff }
  | {
      readonly kind: "failed";
      readonly file: string;
      readonly line?: number;
      readonly reason: string;
    };

/** The access file as it is in force, kept up to date with the disk. */
export interface LiveAccess {
  /** The state in force: the last good one. */
  readonly snapshot: Snapshot;
  /** True while the file on disk is not what is in force. */
  readonly stale: boolean;
  /** Reads the file now; resolves when what is on disk is in force or was refused. */
  reload(): Promise<void>;
  close(): Promise<void>;
}

async function load(file: string, checkRead: boolean): Promise<Snapshot> {
  const text = await readGuarded(file, { checkRead });
  return parseAccessFile(text, file);
}

function asFailure(file: string, error: unknown): ReloadEvent {
  if (error instanceof AccessFileError) {
    const { line, reason } = error;
    return { kind: "failed", file, reason, ...(line === undefined ? {} : { line }) };
  }
  if (error instanceof UnsafeFileError) return { kind: "failed", file, reason: error.reason };
  const code = error instanceof Error && "code" in error ? String(error.code) : "unknown error";
  return {
    kind: "failed",
    file,
    reason: code === "ENOENT" ? "is missing" : `cannot be read (${code})`,
  };
}

/**
 * Loads the access file and keeps the snapshot in step with it. Whatever is wrong with a later
 * state of the file, the last good one stays in force and `onReload` is told.
 *
 * @throws AccessFileError, UnsafeFileError or the file system's error if the first load fails
 */
export async function openAccessFile(
  file: string,
  options: { checkRead: boolean; onReload: (event: ReloadEvent) => void },
): Promise<LiveAccess> {
  let snapshot = await load(file, options.checkRead);
  let stale = false;
  let reloading: Promise<void> = Promise.resolve();

  async function reloadNow(): Promise<void> {
    try {
      const next = await load(file, options.checkRead);
      const changed = next.version !== snapshot.version;
      if (!changed && !stale) return;
      const diff = diffSnapshots(snapshot, next);
      snapshot = next;
      stale = false;
      options.onReload({ kind: "loaded", snapshot, diff });
    } catch (error) {
      stale = true;
      options.onReload(asFailure(file, error));
    }
  }

  // One after another, so that an older read can never replace a newer one.
  function reload(): Promise<void> {
    reloading = reloading.then(reloadNow);
    return reloading;
  }

  const watch = watchFile(file, reload);
  return {
    get snapshot() {
      return snapshot;
    },
    get stale() {
      return stale;
    },
    reload,
    async close() {
      await watch.close();
      await reloading;
    },
  };
}
