let writes: (() => void)[] = [];

function writeAll(): void {
  const taken = writes;
  writes = [];
  for (const write of taken) write();
}

/**
 * Puts off a write to a socket until all that has arrived was read, so that the writes of a turn of
 * the event loop are made one right after the other. A reader that is asleep has to be woken, which
 * costs as much as the write itself; while it reads the first, the others find it awake.
 *
 * @param write throws nothing
 */
export function writeTogether(write: () => void): void {
  if (writes.push(write) === 1) setImmediate(writeAll);
}
