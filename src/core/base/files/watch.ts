import path from "node:path";
import { setTimeout as delay } from "node:timers/promises";
import { watch } from "chokidar";
import { Turns } from "../queues.ts";
import { type Fingerprint, fingerprint } from "./guarded.ts";
import { resultCode } from "./lock.ts";

const POLL_MS = 200;
/** A file counts as written when it has not changed for this long (debounce). */
const SETTLE_MS = 100;
/** Pause of the watch after an event of another file. The poll goes on and notices within a second. */
const PAUSE_MS = 10_000;
/** A file that keeps changing is read after this time. */
const PATIENCE_MS = 500;
/** Differs from each fingerprint, so that the file is read again. */
const UNSETTLED = "unsettled";

/** Errors of the file system that can pass while the file stays as it is. */
const passingCodes = new Set(["EMFILE", "ENFILE", "ENOMEM", "EIO", "ESTALE", "ETIMEDOUT"]);
/** Result code of SQLite for a lock file that cannot be opened, such as for lack of descriptors. */
const SQLITE_CANTOPEN = 14;
const RETRY_MS = 500;

export function canPass(error: unknown): boolean {
  if (!(error instanceof Error)) return false;
  const isPassing = "code" in error && passingCodes.has(String(error.code));
  return isPassing || resultCode(error) === SQLITE_CANTOPEN || canPass(error.cause);
}

function watchDirectory(directory: string, onReport: () => void) {
  const ignored = (each: string) => each !== directory;
  // Raw events, since a ConfigMap swaps a link beside the file, which causes no event for the file
  // itself.
  return watch(directory, { ignored, ignoreInitial: true, usePolling: false })
    .on("raw", onReport)
    .on("error", () => {});
}

/**
 * Calls `onSettled` each time `file` has changed and then stayed unchanged for 100 ms, at the
 * latest 500 ms after the first change. Watching the directory also covers files that are renamed
 * over, recreated, or reached through a swapped symlink. A poll every 200 ms covers what
 * events miss: network mounts, bind mounts, and symlinks further up.
 *
 * @param look what identifies a state, if more than the file itself
 */
export function watchFile(
  file: string,
  onSettled: () => unknown,
  look: () => Fingerprint = () => fingerprint(file),
) {
  let seen = look();
  let changing: { since: number; last: Fingerprint } | undefined;
  let timer: NodeJS.Timeout | undefined;
  let pause: NodeJS.Timeout | undefined;

  function checkSettled(): void {
    if (changing === undefined) return;
    const now = look();
    const still = now === changing.last;
    if (!still && performance.now() - changing.since < PATIENCE_MS) {
      changing.last = now;
      timer = setTimeout(checkSettled, SETTLE_MS);
      return;
    }
    changing = undefined;
    // Systems with coarse times may not show a change just after a look.
    seen = still ? now : UNSETTLED;
    // The path may lead to another directory now.
    if (pause === undefined) {
      void watcher.close();
      watcher = watchDirectory(directory, checkNow);
    }
    onSettled();
  }

  function notice(): void {
    if (changing !== undefined) return;
    const now = look();
    if (now === seen) return;
    changing = { since: performance.now(), last: now };
    timer = setTimeout(checkSettled, SETTLE_MS);
  }

  /**
   * In a directory that also has a log file, chokidar would read all entries again and again, so
   * events of other files pause the watch.
   */
  function checkNow(): void {
    notice();
    if (changing !== undefined || pause !== undefined) return;
    void watcher.close();
    pause = setTimeout(() => {
      pause = undefined;
      watcher = watchDirectory(directory, checkNow);
      notice();
    }, PAUSE_MS);
  }

  const directory = path.dirname(path.resolve(file));
  let watcher = watchDirectory(directory, checkNow);
  const poll = setInterval(notice, POLL_MS);

  return {
    note(): void {
      if (changing === undefined && seen !== UNSETTLED) seen = look();
    },
    async close(): Promise<void> {
      clearInterval(poll);
      clearTimeout(timer);
      clearTimeout(pause);
      await watcher.close();
    },
  };
}

/**
 * Calls `load` each time one of the files has changed, for each `reload`, and again soon after an
 * error that can pass. The calls run one at a time, so that an older read can never replace a newer
 * one, and those who ask before the next one starts share it.
 *
 * @param onFailure called with each error of `load`, but once for an error that can pass
 * @param look what identifies a state of a file
 */
export function followFiles(
  files: Iterable<string>,
  load: () => unknown,
  onFailure: (error: unknown) => void,
  look: (file: string) => Fingerprint = fingerprint,
) {
  const loads = new Turns();
  let queued: Promise<void> | undefined;
  let retry: NodeJS.Timeout | undefined;
  let isRetrying = false;
  let isClosed = false;

  async function loadNow(): Promise<void> {
    queued = undefined;
    clearTimeout(retry);
    const wasRetrying = isRetrying;
    try {
      await load();
      isRetrying = false;
    } catch (error) {
      // A read may fail while the watch is being closed.
      isRetrying = canPass(error) && !isClosed;
      if (isRetrying) retry = setTimeout(reload, RETRY_MS);
      if (!isRetrying || !wasRetrying) onFailure(error);
    }
  }

  function reload(): Promise<void> {
    queued ??= loads.run(loadNow);
    return queued;
  }

  const onSettled = () => {
    isRetrying = false;
    return reload();
  };
  const watches = Array.from(files, (file) => watchFile(file, onSettled, () => look(file)));
  return {
    /** Resolves once no failed read is to be repeated. */
    async reload(): Promise<void> {
      await reload();
      while (isRetrying) await delay(SETTLE_MS);
    },
    /**
     * Records the current states as seen; for a caller that is about to read the files without
     * having been notified. Otherwise a file that is created, read and deleted at once would look
     * unchanged.
     */
    note(): void {
      for (const watch of watches) watch.note();
    },
    async close(): Promise<void> {
      isClosed = true;
      isRetrying = false;
      clearTimeout(retry);
      await Promise.all(watches.map((watch) => watch.close()));
      await loads.end();
    },
  };
}
