import { runCooperatively } from "../cooperative-scheduling.ts";
import { UnsafeFileError } from "../files/guarded.ts";
import { watchFile } from "../files/watch.ts";
import { type AccessDiff, diffSteps } from "./diff.ts";
import { AccessFileError, type ParsedAccess, readAgain } from "./parse.ts";
import type { AccessProblem } from "./problems.ts";
import { readAccessBytes } from "./read.ts";
import { emptySnapshot, type Snapshot } from "./snapshot.ts";

/** What a reload came to. */
export type ReloadEvent =
  | {
      readonly kind: "loaded";
      readonly previous: Snapshot;
      readonly snapshot: Snapshot;
      readonly diff: AccessDiff;
    }
  | {
      readonly kind: "failed";
      readonly file: string;
      /** All that is wrong, in the order of the file; at least one. */
      readonly problems: readonly AccessProblem[];
    };

/** The access file as it is in force, kept up to date with the disk. */
export interface LiveAccess {
  /** The state in force: the last good one. */
  readonly snapshot: Snapshot;
  /** The last good reading, for whoever changes the file next. */
  readonly parsed: ParsedAccess | undefined;
  /** True while the file on disk is not what is in force. */
  readonly stale: boolean;
  /** Calls `listener` after each reload, whatever it came to. */
  subscribe(listener: (event: ReloadEvent) => void): void;
  /**
   * Reads the file now; resolves when what is on disk is in force or was refused.
   *
   * @param expected what is likely to be found, so that it need not be parsed again
   */
  reload(expected?: ParsedAccess): Promise<void>;
  close(): Promise<void>;
}

async function load(
  file: string,
  checkRead: boolean,
  earlier?: ParsedAccess,
): Promise<ParsedAccess> {
  return readAgain(await readAccessBytes(file, { checkRead }), file, earlier);
}

function asFailure(file: string, error: unknown): ReloadEvent {
  const failed = (problems: readonly AccessProblem[]): ReloadEvent => ({
    kind: "failed",
    file,
    problems,
  });
  if (error instanceof AccessFileError) return failed(error.problems);
  if (error instanceof UnsafeFileError) return failed([{ reason: error.reason }]);
  const code = error instanceof Error && "code" in error ? String(error.code) : "unknown error";
  return failed([{ reason: code === "ENOENT" ? "is missing" : `cannot be read (${code})` }]);
}

/**
 * Loads the access file and keeps the snapshot in step with it. Whatever is wrong with a later
 * state of the file, the last good one stays in force.
 *
 * @throws AccessFileError, UnsafeFileError or the file system's error if the first load fails
 */
export async function openAccessFile(
  file: string,
  options: { checkRead: boolean },
): Promise<LiveAccess> {
  let parsed: ParsedAccess | undefined;
  let snapshot = emptySnapshot;
  let stale = false;
  let waiting: { reload: Promise<void>; expected: ParsedAccess | undefined } | undefined;
  const listeners: ((event: ReloadEvent) => void)[] = [];

  function tell(event: ReloadEvent): void {
    for (const listener of listeners) listener(event);
  }

  async function reloadNow(expected: ParsedAccess | undefined): Promise<void> {
    try {
      const next = await load(file, options.checkRead, expected ?? parsed);
      if (next.snapshot.version === snapshot.version && !stale) return;
      const diff = await runCooperatively(diffSteps(snapshot, next.snapshot));
      const previous = snapshot;
      parsed = next;
      snapshot = next.snapshot;
      stale = false;
      tell({ kind: "loaded", previous, snapshot, diff });
    } catch (error) {
      stale = true;
      tell(asFailure(file, error));
    }
  }

  // One after another, so that an older read can never replace a newer one. Who asks while one
  // waits to begin shares it.
  function reload(expected?: ParsedAccess): Promise<void> {
    waiting = { reload: waiting?.reload ?? begin(), expected: expected ?? waiting?.expected };
    return waiting.reload;
  }

  function begin(): Promise<void> {
    reloading = reloading.then(() => {
      const expected = waiting?.expected;
      waiting = undefined;
      return reloadNow(expected);
    });
    return reloading;
  }

  // Watched before it is read, so that no change can fall between the two.
  const watch = watchFile(file, () => void reload());
  const opening = load(file, options.checkRead).then((first) => {
    parsed = first;
    snapshot = first.snapshot;
  });
  let reloading = opening.catch(() => undefined);
  try {
    await opening;
  } catch (error) {
    await watch.close();
    throw error;
  }
  return {
    get snapshot() {
      return snapshot;
    },
    get parsed() {
      return parsed;
    },
    get stale() {
      return stale;
    },
    subscribe: (listener) => listeners.push(listener),
    reload,
    async close() {
      await watch.close();
      await reloading;
    },
  };
}
