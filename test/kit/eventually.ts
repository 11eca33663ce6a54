import { setTimeout as delay } from "node:timers/promises";

const LIMIT_MS = 20_000;
const STEP_MS = 20;

/**
 * Asks again and again until the answer is yes: for what shows itself only by being looked at.
 *
 * @throws Error naming `what` if it is still no after twenty seconds
 */
export async function eventually(
  what: string,
  isSo: () => boolean | Promise<boolean>,
): Promise<void> {
  const start = performance.now();
  while (!(await isSo())) {
    if (performance.now() - start > LIMIT_MS) throw new Error(`never: ${what}`);
    await delay(STEP_MS);
  }
}
