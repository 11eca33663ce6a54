import { statSync } from "node:fs";
import path from "node:path";
import { watch } from "chokidar";

/** How often a file is polled besides what the watch reports, in milliseconds. */
const POLL_MS = 500;
/** A file is taken as written once it has not changed for so long (debounce), in milliseconds. */
const SETTLE_MS = 100;
/** In a busy directory, such as one that a log is written to, two looks are so far apart. */
const GATHER_MS = 20;
/** A file that never stands still is read all the same after so long, in milliseconds. */
const PATIENCE_MS = 500;

/** What tells one state of a file from another; undefined while there is no file. */
type Fingerprint = string | undefined;

function fingerprint(file: string): Fingerprint {
  try {
    const stat = statSync(file, { bigint: true, throwIfNoEntry: false });
    if (stat === undefined) return undefined;
    // ctime too: a change of permissions or a write that sets back mtime must not go unseen.
    return [stat.dev, stat.ino, stat.size, stat.mtimeNs, stat.ctimeNs].join(":");
  } catch (error) {
    // A path of which nothing can be learned is in a state of its own.
    return error instanceof Error ? error.message : "unreadable";
  }
}

/** Reports whatever changes in a directory; the poll goes on where the system cannot watch it. */
function watchDirectory(directory: string, onReport: () => void) {
  const ignored = (each: string) => each !== directory;
  // Raw, since a ConfigMap swaps a link beside the file, which is no event of the file itself.
  return watch(directory, { ignored, ignoreInitial: true, usePolling: false })
    .on("raw", onReport)
    .on("error", () => {});
}

/** Watches one file for as long as it is wanted. */
export interface FileWatch {
  /**
   * Takes the file as it is now for what was seen: for whoever is about to read it without having
   * been called. A file that is made, read and deleted at once would else look as if nothing was.
   */
  note(): void;
  close(): Promise<void>;
}

/**
 * Calls `onSettled` each time that `file` has changed and then stood still for 100 ms, at the
 * latest 500 ms after the first sign of change. The directory is watched, so that a file that is
 * renamed over, deleted and made again, or behind a swapped symlink is seen; a poll every half
 * second covers what a watch misses (network mounts, bind mounts, symlinks further up).
 */
export function watchFile(file: string, onSettled: () => void): FileWatch {
  let seen = fingerprint(file);
  let changing: { since: number; last: Fingerprint } | undefined;
  let timer: NodeJS.Timeout | undefined;
  let gathering: NodeJS.Timeout | undefined;
  let hasMore = false;

  function settle(): void {
    if (changing === undefined) return;
    const now = fingerprint(file);
    const still = now === changing.last;
    if (!still && performance.now() - changing.since < PATIENCE_MS) {
      changing.last = now;
      timer = setTimeout(settle, SETTLE_MS);
      return;
    }
    changing = undefined;
    seen = now;
    // The directory may be another one by now.
    void watcher.close();
    watcher = watchDirectory(directory, gather);
    onSettled();
  }

  function notice(): void {
    if (changing !== undefined) return;
    const now = fingerprint(file);
    if (now === seen) return;
    changing = { since: performance.now(), last: now };
    timer = setTimeout(settle, SETTLE_MS);
  }

  /** Looks at once: a file that is made and soon deleted is gone when the reports are gathered. */
  function gather(): void {
    if (gathering !== undefined) {
      hasMore = true;
      return;
    }
    notice();
    gathering = setTimeout(() => {
      gathering = undefined;
      if (hasMore) gather();
    }, GATHER_MS);
    hasMore = false;
  }

  const directory = path.dirname(path.resolve(file));
  let watcher = watchDirectory(directory, gather);
  const poll = setInterval(notice, POLL_MS);

  return {
    note() {
      if (changing === undefined) seen = fingerprint(file);
    },
    async close() {
      clearInterval(poll);
      clearTimeout(timer);
      clearTimeout(gathering);
      await watcher.close();
    },
  };
}
