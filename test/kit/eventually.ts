import { setTimeout as delay } from "node:timers/promises";

/** Timeout for any event that a test waits for, on a busy machine. */
export const PATIENCE_MS = 60_000;
const STEP_MS = 40;

/**
 * Polls a condition that has no event.
 *
 * @throws Error naming `what` after the timeout
 */
export async function eventually(
  what: string,
  isSo: () => boolean | Promise<boolean>,
): Promise<void> {
  const start = performance.now();
  while (!(await isSo())) {
    if (performance.now() - start > PATIENCE_MS) throw new Error(`never: ${what}`);
    await delay(STEP_MS);
  }
}

export async function untilStill(what: string, count: () => number): Promise<void> {
  let last = count();
  let looks = 0;
  await eventually(`${what} stands still`, () => {
    const now = count();
    looks = now === last ? looks + 1 : 0;
    last = now;
    return looks === 10;
  });
}
