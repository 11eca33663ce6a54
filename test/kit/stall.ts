import { setTimeout as delay } from "node:timers/promises";
import type { Test } from "tap";

export const LONGEST_STALL_MS = 50;

/** Processor time of this thread, which does not grow on a busy machine. */
function cpuMs(): number {
  const { user: inCode, system } = process.threadCpuUsage();
  return (inCode + system) / 1000;
}

/** The longest stall of the event loop during `work`, in milliseconds of processor time. */
export async function longestStall(work: () => unknown): Promise<number> {
  let before = cpuMs();
  let longest = 0;
  const look = () => {
    const now = cpuMs();
    longest = Math.max(longest, now - before);
    before = now;
  };
  const timer = setInterval(look, 1);
  await delay(10);
  await work();
  await delay(10);
  clearInterval(timer);
  return longest;
}

/** Requires that `work` does not stall the event loop in one of ten attempts. */
export async function requireNoStall(t: Test, work: (attempt: number) => unknown): Promise<void> {
  const stalls: number[] = [];
  for (let attempt = 0; attempt < 10; attempt++) {
    stalls.push(await longestStall(() => work(attempt)));
    if (Math.min(...stalls) < LONGEST_STALL_MS) break;
  }
  t.ok(Math.min(...stalls) < LONGEST_STALL_MS, `the longest stalls took ${stalls} ms`);
}
