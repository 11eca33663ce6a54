import fc from "fast-check";
import t from "tap";
import { nonLinearizable, type Operation } from "./faults/linearizable.ts";

const write = (start: number, end: number, value: string): Operation => ({
  start,
  end,
  value,
  kind: "write",
});
const read = (start: number, end: number, value: string, holds = true): Operation => ({
  start,
  end,
  value,
  holds,
  kind: "read",
});
const unknown = Number.POSITIVE_INFINITY;

t.test("possible histories of a register are accepted", async (t) => {
  const histories: Record<string, Operation[]> = {
    nothing: [],
    "a read of the initial value": [read(0, 1, "a")],
    "a read after a write": [write(0, 1, "b"), read(2, 3, "b"), read(4, 5, "a", false)],
    "reads before and after a pending write": [
      write(0, 9, "b"),
      read(1, 2, "a"),
      read(3, 4, "b"),
      read(5, 6, "b"),
    ],
    "two simultaneous writes, whose order a read shows": [
      write(0, 5, "b"),
      write(1, 4, "c"),
      read(6, 7, "b"),
      read(8, 9, "b"),
    ],
    "a write with an unknown outcome that had no effect": [
      write(0, unknown, "b"),
      read(2, 90, "a"),
    ],
    "a write with an unknown outcome that took effect late": [
      write(0, unknown, "b"),
      read(2, 3, "a"),
      read(4, 5, "b"),
    ],
    "an operation that ends when another starts": [write(0, 2, "b"), read(2, 3, "a")],
  };
  for (const [name, history] of Object.entries(histories)) {
    t.equal(nonLinearizable("a", history), undefined, name);
  }
});

t.test("impossible histories of a register are found", async (t) => {
  const histories: Record<string, [history: Operation[], at: number]> = {
    "a read of a value that was never written": [[read(0, 1, "b")], 0],
    "a read of the old value after the end of a write": [[write(0, 1, "b"), read(2, 3, "a")], 1],
    "the new value, then the old one": [[write(0, 9, "b"), read(1, 2, "b"), read(3, 4, "a")], 2],
    "a write that was lost": [[write(0, 1, "b"), read(2, 3, "b"), read(4, 5, "b", false)], 2],
    "two orders of two writes": [
      [write(0, 5, "b"), write(0, 5, "c"), read(6, 7, "b"), read(8, 9, "c")],
      3,
    ],
    "a write with an unknown outcome that was seen and then lost": [
      [write(0, unknown, "b"), read(2, 3, "b"), read(4, 5, "a")],
      2,
    ],
  };
  for (const [name, [history, at]] of Object.entries(histories)) {
    t.equal(nonLinearizable("a", history), history[at], name);
  }
});

/** Tries every order of the operations that fits their times. */
function isLinearizable(value: string, left: readonly Operation[]): boolean {
  if (left.every(({ end }) => end === unknown)) return true;
  return left.some((first) => {
    if (left.some((other) => other.end < first.start)) return false;
    const rest = left.filter((other) => other !== first);
    if (first.kind === "write") return isLinearizable(first.value, rest);
    return (first.value === value) === first.holds && isLinearizable(value, rest);
  });
}

t.test("the checker agrees with an exhaustive search", async (t) => {
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
        ...rest,
        kind,
        end: isUnknown && kind === "write" ? unknown : rest.start + length,
      }),
    );
  const verdicts = { good: 0, bad: 0 };
  fc.assert(
    fc.property(fc.array(operation, { maxLength: 7 }), (history) => {
      const expected = isLinearizable("a", history);
      verdicts[expected ? "good" : "bad"]++;
      return (nonLinearizable("a", history) === undefined) === expected;
    }),
    { numRuns: 2000, seed: 16 },
  );
  t.ok(verdicts.good > 300 && verdicts.bad > 300, JSON.stringify(verdicts));
});
