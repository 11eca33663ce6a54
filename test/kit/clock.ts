/** Clocks that a test sets, until it ends. */
import { mock } from "node:test";
import type { Test } from "tap";

/** @returns a function that moves the clock on by seconds; it runs all the time */
export function movableClock(t: Test): (seconds: number) => void {
  const { now } = Date;
  t.teardown(() => {
    Date.now = now;
  });
  let ahead = 0;
  return (seconds) => {
    ahead += seconds * 1000;
    Date.now = () => now() + ahead;
  };
}

/** Stops the clock, by default now. @returns a function that moves it on by seconds */
export function stopClock(t: Test, now = Date.now()): (seconds: number) => void {
  mock.timers.enable({ apis: ["Date"], now });
  t.teardown(() => mock.timers.reset());
  return (seconds) => mock.timers.tick(seconds * 1000);
}
