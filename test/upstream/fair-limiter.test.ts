import { mock } from "node:test";
import * as fc from "fast-check";
import t from "tap";
import { FairLimiter } from "../../src/upstream/fair-limiter.ts";

function taken(limiter: FairLimiter, user: string): string {
  if (!limiter.tryTake(user)) throw new Error("no slot");
  return user;
}

const MINUTE = 60_000;

function limiterOf(slots: number, waiting: number, patience = MINUTE): FairLimiter {
  return new FairLimiter({ slots, waiting, patience }, { add() {} });
}

interface Waiting {
  readonly turn: Promise<string | undefined>;
  leave(): void;
}

function join(limiter: FairLimiter, user: string): Waiting | undefined {
  const { promise: turn, resolve } = Promise.withResolvers<string | undefined>();
  const leave = limiter.wait(user, (how) => resolve(how === "slot" ? user : undefined));
  return leave && { turn, leave };
}

function joined(limiter: FairLimiter, user: string): Waiting {
  const place = join(limiter, user);
  if (place === undefined) throw new Error("no place");
  return place;
}

t.test("a slot goes to who holds the fewest, then to whose turn is oldest", async (t) => {
  const limiter = limiterOf(3, 10);
  const all = Array.from({ length: 3 }, () => taken(limiter, "flood"));
  const order: string[] = [];
  const places = ["flood", "flood", "flood", "flood", "bob", "bob", "carol"].map((user) => {
    const place = joined(limiter, user);
    void place.turn.then(() => order.push(user));
    return place;
  });

  for (const slot of all) limiter.release(slot);
  await places[0]?.turn;
  t.strictSame(order, ["bob", "carol", "flood"], "those who hold nothing, then the flood itself");
  limiter.release("bob");
  await places[5]?.turn;
  t.equal(order.at(-1), "bob", "whose first query is done, and who holds less than the flood");
  for (const user of ["carol", "flood", "bob"]) limiter.release(user);
  await places[3]?.turn;
  t.strictSame(order.slice(4), ["flood", "flood", "flood"], "once alone, it has all limiter");
});

t.test("a full line makes room for others at the cost of the longest", async (t) => {
  const limiter = limiterOf(1, 4);
  const slot = taken(limiter, "flood");
  const flood = Array.from({ length: 4 }, () => joined(limiter, "flood"));
  t.equal(join(limiter, "flood"), undefined);
  const first = joined(limiter, "bob");
  t.equal(await flood[3]?.turn, undefined, "who came last has to go");
  const second = joined(limiter, "bob");
  t.equal(await flood[2]?.turn, undefined);
  t.equal(join(limiter, "bob"), undefined, "their lines are of one length now");
  t.equal(join(limiter, "flood"), undefined);
  let holder = slot;
  for (const [place, user] of [
    [flood[0], "flood"],
    [first, "bob"],
    [flood[1], "flood"],
    [second, "bob"],
  ] as const) {
    limiter.release(holder);
    t.equal(await place?.turn, user);
    holder = user;
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
  const slot = taken(limiter, "alice");
  const first = ["alice", "alice", "bob"].map((user) => joined(limiter, user).turn);
  pass(60);
  const later = [joined(limiter, "carol"), joined(limiter, "dave")];
  pass(40);
  t.strictSame(await Promise.all(first), [undefined, undefined, undefined]);
  t.equal(limiter.waiting, 2);
  limiter.release(slot);
  t.equal(await later[0]?.turn, "carol");
  pass(60);
  t.equal(await later[1]?.turn, undefined, "each by its own time");
  t.equal(limiter.waiting, 0);
  t.strictSame(waits, [0.1, 0.1, 0.1, 0.04, 0.1]);
});

const step = fc.record({
  kind: fc.constantFrom("ask", "ask", "release", "leave"),
  user: fc.constantFrom("alice", "bob", "carol", "dave"),
  at: fc.nat(99),
});

t.test("whatever comes, slots are neither lost nor made, and the neediest goes next", async (t) => {
  const property = fc.asyncProperty(
    fc.integer({ min: 1, max: 4 }),
    fc.integer({ min: 0, max: 8 }),
    fc.array(step, { maxLength: 120 }),
    async (count, room, steps) => {
      const limiter = limiterOf(count, room);
      const held: string[] = [];
      let waiting: { user: string; place: Waiting }[] = [];
      const holds = (user: string) => held.filter((one) => one === user).length;
      for (const { kind, user, at } of steps) {
        const fewest = Math.min(...waiting.map((one) => holds(one.user)));
        if (kind === "ask") {
          if (limiter.tryTake(user)) {
            if (waiting.length > 0) throw new Error("somebody was passed by");
            held.push(user);
          } else {
            const place = join(limiter, user);
            if (place !== undefined) waiting.push({ user, place });
          }
        } else if (kind === "release") {
          const [given] = held.splice(at % Math.max(held.length, 1), 1);
          if (given !== undefined) limiter.release(given);
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
            held.push(one.user);
          }
        }
        waiting = still;
        if (held.length > count) throw new Error("too many are held");
        if (held.length !== limiter.busy) throw new Error("one is miscounted");
        if (waiting.length > room) throw new Error("the line is too long");
        if (waiting.length > 0 && held.length < count) throw new Error("a slot lies idle");
      }
    },
  );
  await fc.assert(property, { numRuns: 300 });
  t.pass();
});
