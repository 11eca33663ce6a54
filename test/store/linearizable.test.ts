import fc from "fast-check";
import t from "tap";
import { nonLinearizable, type Operation } from "./faults/linearizable.ts";

const write = (start: number, end: number, value: string): Operation => ({
  ...{ start, end, value, kind: "write" },
});
const read = (start: number, end: number, value: string, holds = true): Operation => ({
  ...{ start, end, value, holds, kind: "read" },
});
const unknown = Number.POSITIVE_INFINITY;

t.test("histories that one register could have", async (t) => {
  const histories: Record<string, Operation[]> = {
    nothing: [],
    "a read of what was there": [read(0, 1, "a")],
    "a read after a write": [write(0, 1, "b"), read(2, 3, "b"), read(4, 5, "a", false)],
    "reads on both sides of a write that is under way": [
      ...[write(0, 9, "b"), read(1, 2, "a"), read(3, 4, "b"), read(5, 6, "b")],
    ],
    "two writes at once, whose order a read tells": [
      ...[write(0, 5, "b"), write(1, 4, "c"), read(6, 7, "b"), read(8, 9, "b")],
    ],
    "a write of which nobody knows, never made": [write(0, unknown, "b"), read(2, 90, "a")],
    "a write of which nobody knows, made late": [
      ...[write(0, unknown, "b"), read(2, 3, "a"), read(4, 5, "b")],
    ],
    "what ends when another starts": [write(0, 2, "b"), read(2, 3, "a")],
  };
  for (const [name, history] of Object.entries(histories)) {
    t.equal(nonLinearizable("a", history), undefined, name);
  }
});

t.test("histories that no register has", async (t) => {
  const histories: Record<string, [history: Operation[], at: number]> = {
    "a read of what nobody wrote": [[read(0, 1, "b")], 0],
    "a read of the old after the write was answered": [[write(0, 1, "b"), read(2, 3, "a")], 1],
    "the new, then the old again": [[write(0, 9, "b"), read(1, 2, "b"), read(3, 4, "a")], 2],
    "a write that is gone": [[write(0, 1, "b"), read(2, 3, "b"), read(4, 5, "b", false)], 2],
    "two orders of two writes": [
      [write(0, 5, "b"), write(0, 5, "c"), read(6, 7, "b"), read(8, 9, "c")],
      3,
    ],
    "a write of which nobody knows, made and gone": [
      [write(0, unknown, "b"), read(2, 3, "b"), read(4, 5, "a")],
      2,
    ],
  };
  for (const [name, [history, at]] of Object.entries(histories)) {
    t.equal(nonLinearizable("a", history), history[at], name);
  }
});

/** Every order of the operations that keeps to their times, one after the other. */
function isLinearizableByTrying(value: string, left: readonly Operation[]): boolean {
  if (left.every(({ end }) => end === unknown)) return true;
  return left.some((first) => {
    if (left.some((other) => other.end < first.start)) return false;
    const rest = left.filter((other) => other !== first);
    if (first.kind === "write") return isLinearizableByTrying(first.value, rest);
    return (first.value === value) === first.holds && isLinearizableByTrying(value, rest);
  });
}

t.test("it finds what trying all orders finds", async (t) => {
  const operation = fc
    .record({
      start: fc.integer({ min: 0, max: 12 }),
      length: fc.integer({ min: 1, max: 6 }),
      value: fc.constantFrom("a", "b", "c"),
      kind: fc.constantFrom("write" as const, "read" as const, "read" as const),
      holds: fc.boolean(),
      isUnknown: fc.boolean(),
    })
    .map(
      ({ length, isUnknown, kind, ...rest }): Operation => ({
        ...{ ...rest, kind },
        end: isUnknown && kind === "write" ? unknown : rest.start + length,
      }),
    );
  const verdicts = { good: 0, bad: 0 };
  fc.assert(
    fc.property(fc.array(operation, { maxLength: 7 }), (history) => {
      const expected = isLinearizableByTrying("a", history);
      verdicts[expected ? "good" : "bad"]++;
      return (nonLinearizable("a", history) === undefined) === expected;
    }),
    { numRuns: 2000, seed: 16 },
  );
  t.ok(verdicts.good > 300 && verdicts.bad > 300, JSON.stringify(verdicts));
});
