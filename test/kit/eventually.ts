import { setTimeout as delay } from "node:timers/promises";

/** How long a test waits for what must come, on however busy a machine, in milliseconds. */
export const PATIENCE_MS = 60_000;
const STEP_MS = 20;

/**
 * Asks again and again until the answer is yes: for what shows itself only by being looked at.
 *
 * @throws Error naming `what` if it is still no when the patience is over
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
    return looks === 20;
  });
}
