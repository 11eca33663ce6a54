import t from "tap";
import { epochSeconds, forgettableBefore, steadySeconds } from "../src/core/base/clock.ts";
import { movableClock } from "./kit/clock.ts";

const DAY = 24 * 3600;

t.test("expired entries are forgotten after a week by a process that has run for an hour", (t) => {
  t.equal(forgettableBefore(3_599_999), 0, "nothing before that");
  const limit = forgettableBefore(3_600_000);
  t.ok(limit <= epochSeconds() - 7 * DAY && limit > epochSeconds() - 8 * DAY);
  t.end();
});

t.test("the steady time follows the clock, but no jumps ahead", (t) => {
  t.ok(Math.abs(steadySeconds() - epochSeconds()) <= 1);
  const pass = movableClock(t);
  const before = steadySeconds();
  pass(400 * DAY);
  t.ok(steadySeconds() < before + DAY);
  pass(-800 * DAY);
  t.ok(steadySeconds() < before - 399 * DAY, "it follows a clock that is set back");
  t.end();
});
