import type { ChildProcess } from "node:child_process";
import { once } from "node:events";
import { eventually } from "../kit/eventually.ts";

/** The part of a test that helpers need. */
export interface Teardown {
  teardown(work: () => unknown): void;
}

export async function untilAnswering(ask: () => Promise<unknown>): Promise<void> {
  await eventually("the server accepts connections", () =>
    ask().then(
      () => true,
      () => false,
    ),
  );
}

/** Ends a server by its guard, which waits for its own standard input to close. */
export async function endGuard(guard: ChildProcess | undefined): Promise<void> {
  if (guard === undefined || guard.exitCode !== null) return;
  const exited = once(guard, "exit");
  guard.stdin?.end();
  await exited;
}
