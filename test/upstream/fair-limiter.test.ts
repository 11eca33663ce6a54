import { mock } from "node:test";
import * as fc from "fast-check";
import t from "tap";
import { FairLimiter, type Slot } from "../../src/upstream/fair-limiter.ts";

/** The slot, which there must be. */
function taken(slot: Slot | undefined): Slot {
  if (slot === undefined) throw new Error("no slot");
  return slot;
}

const MINUTE = 60_000;

function limiterOf(slots: number, waiting: number, patience = MINUTE): FairLimiter {
  return new FairLimiter({ slots, waiting, patience }, { add() {} });
}

/** A place, and what it is told. */
interface Waiting {
  readonly turn: Promise<Slot | undefined>;
  leave(): void;
}

function join(limiter: FairLimiter, user: string): Waiting | undefined {
  const { promise: turn, resolve } = Promise.withResolvers<Slot | undefined>();
  const place = limiter.wait(user, resolve);
  return place && { turn, leave: () => place.leave() };
}

/** The place, which there must be. */
function joined(limiter: FairLimiter, user: string): Waiting {
  const place = join(limiter, user);
  if (place === undefined) throw new Error("no place");
  return place;
}

t.test("of one user, who has waited longest goes first", async (t) => {
  const limiter = limiterOf(1, 2);
  const slot = taken(limiter.tryTake("alice"));
  t.equal(limiter.tryTake("alice"), undefined);
  const first = joined(limiter, "alice");
  const second = joined(limiter, "alice");
  t.equal(join(limiter, "alice"), undefined, "the line is full");
  limiter.release(slot);
  t.equal(await first.turn, slot);
  limiter.release(slot);
  t.equal(await second.turn, slot);
});

t.test("whoever leaves the line is passed over and holds nothing", async (t) => {
  const limiter = limiterOf(1, 2);
  const slot = taken(limiter.tryTake("alice"));
  const leaver = joined(limiter, "alice");
  const stayer = joined(limiter, "alice");
  leaver.leave();
  leaver.leave();
  t.equal(await leaver.turn, undefined);
  const next = joined(limiter, "alice");
  next.leave();
  limiter.release(slot);
  t.equal(await stayer.turn, slot);
  stayer.leave();
  t.equal(limiter.tryTake("alice"), undefined, "leaving after the turn came gives nothing back");
  limiter.release(slot);
  t.equal(limiter.tryTake("bob"), slot);
});

t.test("without a line one is full as soon as all limiter are held", (t) => {
  const limiter = limiterOf(1, 0);
  taken(limiter.tryTake("alice"));
  t.equal(join(limiter, "alice"), undefined);
  t.equal(join(limiter, "bob"), undefined);
  t.end();
});

t.test(
  "a slot goes to the one who holds the fewest, then to whose turn is longest ago",
  async (t) => {
    const limiter = limiterOf(3, 10);
    const all = Array.from({ length: 3 }, () => taken(limiter.tryTake("flood")));
    const [a = 0, b = 0, c = 0] = all;
    const order: string[] = [];
    const places = ["flood", "flood", "flood", "flood", "bob", "bob", "carol"].map((user) => {
      const place = joined(limiter, user);
      void place.turn.then(() => order.push(user));
      return place;
    });

    for (const slot of all) limiter.release(slot);
    await places[0]?.turn;
    t.strictSame(order, ["bob", "carol", "flood"], "those who hold nothing, then the flood itself");
    limiter.release(a);
    await places[5]?.turn;
    t.equal(order.at(-1), "bob", "whose first query is done, and who holds less than the flood");
    limiter.release(b);
    limiter.release(c);
    limiter.release(a);
    await places[3]?.turn;
    t.strictSame(order.slice(4), ["flood", "flood", "flood"], "once alone, it has all limiter");
  },
);

t.test("a full line makes room for others at the cost of the longest", async (t) => {
  const limiter = limiterOf(1, 4);
  const slot = taken(limiter.tryTake("flood"));
  const flood = Array.from({ length: 4 }, () => joined(limiter, "flood"));
  t.equal(join(limiter, "flood"), undefined);
  const first = joined(limiter, "bob");
  t.equal(await flood[3]?.turn, undefined, "who came last has to go");
  const second = joined(limiter, "bob");
  t.equal(await flood[2]?.turn, undefined);
  t.equal(join(limiter, "bob"), undefined, "their lines are of one length now");
  t.equal(join(limiter, "flood"), undefined);
  for (const place of [flood[0], first, flood[1], second]) {
    limiter.release(slot);
    t.equal(await place?.turn, slot);
  }
});

t.test("who has waited for too long loses the place, and others wait on", async (t) => {
  let now = 0;
  const clock = mock.method(performance, "now", () => now);
  mock.timers.enable({ apis: ["setTimeout"] });
  t.teardown(() => {
    clock.mock.restore();
    mock.timers.reset();
  });
  const pass = (milliseconds: number) => {
    now += milliseconds;
    mock.timers.tick(milliseconds);
  };
  const waits: number[] = [];
  const limits = { slots: 1, waiting: 9, patience: 100 };
  const limiter = new FairLimiter(limits, { add: (seconds) => waits.push(seconds) });
  const slot = taken(limiter.tryTake("alice"));
  const first = ["alice", "alice", "bob"].map((user) => joined(limiter, user).turn);
  pass(60);
  const later = [joined(limiter, "carol"), joined(limiter, "dave")];
  pass(40);
  t.strictSame(await Promise.all(first), [undefined, undefined, undefined]);
  t.equal(limiter.waiting, 2);
  limiter.release(slot);
  t.equal(await later[0]?.turn, slot);
  pass(60);
  t.equal(await later[1]?.turn, undefined, "by the same timer, set anew");
  t.equal(limiter.waiting, 0);
  t.strictSame(waits, [0.1, 0.1, 0.1, 0.04, 0.1]);
});

t.test("a turn is told at once, so that nothing is kept for it meanwhile", (t) => {
  const limiter = limiterOf(1, 1);
  const slot = taken(limiter.tryTake("alice"));
  let told: Slot | undefined;
  limiter.wait("bob", (next) => {
    told = next;
  });
  limiter.release(slot);
  t.equal(told, slot);
  t.end();
});

t.test("a slot passes through any number of waiters that release it at once", (t) => {
  const limiter = limiterOf(1, 50_000);
  const slot = taken(limiter.tryTake("alice"));
  let told = 0;
  for (let at = 0; at < 50_000; at++) {
    limiter.wait("bob", (next) => {
      told++;
      limiter.release(taken(next));
    });
  }
  limiter.release(slot);
  t.equal(told, 50_000);
  t.equal(limiter.busy, 0);
  t.end();
});

/** One step of a property: somebody asks, gives a slot back, or leaves. */
const step = fc.record({
  kind: fc.constantFrom("ask", "ask", "release", "leave"),
  user: fc.constantFrom("alice", "bob", "carol", "dave"),
  at: fc.nat(99),
});

t.test(
  "whatever comes, limiter are neither lost nor made, and the neediest goes next",
  async (t) => {
    const property = fc.asyncProperty(
      fc.integer({ min: 1, max: 4 }),
      fc.integer({ min: 0, max: 8 }),
      fc.array(step, { maxLength: 120 }),
      async (count, room, steps) => {
        const limiter = limiterOf(count, room);
        const held: { user: string; slot: Slot }[] = [];
        let waiting: { user: string; place: Waiting }[] = [];
        const holds = (user: string) => held.filter((one) => one.user === user).length;
        for (const { kind, user, at } of steps) {
          const fewest = Math.min(...waiting.map((one) => holds(one.user)));
          if (kind === "ask") {
            const slot = limiter.tryTake(user);
            if (slot !== undefined) {
              if (waiting.length > 0) throw new Error("somebody was passed by");
              held.push({ user, slot });
            } else {
              const place = join(limiter, user);
              if (place !== undefined) waiting.push({ user, place });
            }
          } else if (kind === "release") {
            const [given] = held.splice(at % Math.max(held.length, 1), 1);
            if (given !== undefined) limiter.release(given.slot);
          } else {
            waiting[at % Math.max(waiting.length, 1)]?.place.leave();
          }
          const still: typeof waiting = [];
          for (const one of waiting) {
            const slot = await Promise.race([one.place.turn, Promise.resolve("waits" as const)]);
            if (slot === "waits") still.push(one);
            else if (slot !== undefined) {
              if (holds(one.user) > fewest) throw new Error("it was another one's turn");
              if (still.some(({ user }) => user === one.user)) throw new Error("out of order");
              held.push({ user: one.user, slot });
            }
          }
          waiting = still;
          const distinct = new Set(held.map(({ slot }) => slot)).size;
          if (distinct !== held.length || held.length > count) throw new Error("held twice");
          if (waiting.length > room) throw new Error("the line is too long");
          if (waiting.length > 0 && held.length < count) throw new Error("a slot lies idle");
        }
      },
    );
    await fc.assert(property, { numRuns: 300 });
    t.pass();
  },
);
