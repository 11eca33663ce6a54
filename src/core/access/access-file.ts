import { runCooperatively } from "../base/cooperative-scheduling.ts";
import { readFailure } from "../base/files/guarded.ts";
import { followFiles } from "../base/files/watch.ts";
import { Refusal } from "../base/refusal.ts";
import type { AccessRules, ReloadEvent } from "./access-rules.ts";
import { diffSteps } from "./diff.ts";
import {
  AccessFileError,
  type AccessProblem,
  type ParsedAccess,
  type ReadOptions,
  readAccessFile,
} from "./parse.ts";
import { emptySnapshot } from "./snapshot.ts";
import { changeAccessFile } from "./write.ts";

interface AccessFileOptions extends ReadOptions {
  /** True if only others may change the file. */
  readonly isReadOnly?: boolean;
  /** Makes the other processes reload the file, and resolves when they have. */
  readonly broadcastReload?: () => Promise<void>;
  /** Awaited before a change by another writer is in force. */
  readonly beforeChange?: () => Promise<void>;
  readonly warn?: (reason: string) => void;
}

const LARGE_BYTES = 4 * 1024 * 1024;

export function sizeWarning(bytes: number): string | undefined {
  return bytes > LARGE_BYTES
    ? "the access file is larger than 4 MiB: use [store] for installations of this size"
    : undefined;
}

function toProblems(error: unknown): readonly AccessProblem[] {
  return error instanceof AccessFileError ? error.problems : [{ reason: readFailure(error) }];
}

/**
 * Opens the rules of an access file and reloads them whenever the file changes. If a later state of
 * the file is invalid, the last good one stays in force.
 *
 * @throws AccessFileError, UnsafeFileError or the file system's error if the first load fails
 */
export async function openAccessFile(
  file: string,
  options: AccessFileOptions,
): Promise<AccessRules> {
  let parsed: ParsedAccess | undefined;
  let isLarge = false;
  let snapshot = emptySnapshot;
  let stale = false;
  /** What this process has written since the last read. */
  let written: ParsedAccess | undefined;
  const listeners: ((event: ReloadEvent) => void)[] = [];

  function notify(event: ReloadEvent): void {
    for (const listener of listeners) listener(event);
  }

  function accept(found: ParsedAccess): void {
    const wasLarge = isLarge;
    const warning = sizeWarning(found.bytes.length);
    isLarge = warning !== undefined;
    if (warning !== undefined && !wasLarge) options.warn?.(warning);
    parsed = found;
    snapshot = found.snapshot;
  }

  async function load(): Promise<void> {
    const expected = written;
    written = undefined;
    const found = await readAccessFile(file, options, expected ?? parsed);
    if (found.snapshot.version === snapshot.version && !stale) return;
    const diff = await runCooperatively(diffSteps(snapshot, found.snapshot));
    if (found !== expected) await options.beforeChange?.();
    const previous = snapshot;
    accept(found);
    stale = false;
    notify({ kind: "loaded", previous, snapshot, diff });
  }

  accept(await readAccessFile(file, options));
  const following = followFiles([file], load, (error) => {
    stale = true;
    notify({ kind: "failed", file, problems: toProblems(error) });
  });
  // Covers changes between the read and the start of the watch.
  await following.reload();
  return {
    get snapshot() {
      return snapshot;
    },
    get version() {
      return snapshot.version;
    },
    get stale() {
      return stale;
    },
    subscribe: (listener) => listeners.push(listener),
    reload: following.reload,
    async change(plan, change) {
      if (options.isReadOnly) throw new Refusal("access_file_read_only");
      const reloadAll = (expected = written) => {
        written = expected;
        return Promise.all([following.reload(), options.broadcastReload?.()]);
      };
      // Reloads an edit by hand on its own, so that the log and the audit know it from the change.
      // Other processes may not have seen an edit that this one has. Not while the file is locked,
      // since one of them may be starting.
      await options.broadcastReload?.();
      const settings = { ...change, checkRead: options.checkRead };
      try {
        const result = await changeAccessFile(file, plan, settings, parsed, reloadAll);
        await reloadAll(result);
        return result;
      } catch (error) {
        const isReadOnly = error instanceof Refusal && error.code === "access_file_read_only";
        if (isReadOnly) options.warn?.(`a change could not be written: ${error.detail}`);
        throw error;
      }
    },
    close: following.close,
  };
}
