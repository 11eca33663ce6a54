import { Refusal } from "../refusal.ts";

/** Runs tasks a few at a time and refuses those for which the queue is too long already. */
export interface BoundedQueue {
  /** @throws Refusal `login_busy` if the queue is full */
  run<T>(task: () => Promise<T>): Promise<T>;
}

/** Makes a queue for `atOnce` running and `waiting` waiting tasks. */
export function boundedQueue(bounds: { atOnce: number; waiting: number }): BoundedQueue {
  const waiting: (() => void)[] = [];
  let running = 0;

  async function enter(): Promise<void> {
    if (running < bounds.atOnce) {
      running++;
      return;
    }
    if (waiting.length >= bounds.waiting) throw new Refusal("login_busy", { retryAfter: 1 });
    // Who leaves hands its place over, so `running` stays as it is.
    await new Promise<void>((resolve) => waiting.push(resolve));
  }

  function leave(): void {
    const next = waiting.shift();
    if (next === undefined) running--;
    else next();
  }

  return {
    async run(task) {
      await enter();
      try {
        return await task();
      } finally {
        leave();
      }
    },
  };
}
