import { mock } from "node:test";
import * as fc from "fast-check";
import t from "tap";
import { FairQueue } from "../../src/core/base/queues.ts";

/** Takes a free slot and returns its user, who releases it. */
function taken(limiter: FairQueue, user: string): string {
  if (!limiter.tryTake({ key: user })) throw new Error("no slot");
  return user;
}

function limiterOf(slots: number, maxWaiting: number): FairQueue {
  return new FairQueue({ slots, maxWaiting, timeoutMs: 60_000 });
}

interface Waiting {
  readonly turn: Promise<string | undefined>;
  cancel(): void;
}

function join(limiter: FairQueue, user: string): Waiting | undefined {
  const { promise: turn, resolve } = Promise.withResolvers<string | undefined>();
  const cancel = limiter.wait({ key: user }, (end) => resolve(end === "slot" ? user : undefined));
  return cancel && { turn, cancel };
}

function joined(limiter: FairQueue, user: string): Waiting {
  const place = join(limiter, user);
  if (place === undefined) throw new Error("no place");
  return place;
}

t.test("a slot goes to the user who holds the fewest and was served least recently", async (t) => {
  const limiter = limiterOf(3, 10);
  const all = Array.from({ length: 3 }, () => taken(limiter, "flood"));
  const order: string[] = [];
  const places = ["flood", "flood", "flood", "flood", "bob", "bob", "carol"].map((user) => {
    const place = joined(limiter, user);
    void place.turn.then(() => order.push(user));
    return place;
  });

  for (const slot of all) limiter.release({ key: slot });
  await places[0]?.turn;
  t.strictSame(order, ["bob", "carol", "flood"], "first the users who hold none");
  limiter.release({ key: "bob" });
  await places[5]?.turn;
  t.equal(order.at(-1), "bob", "bob holds fewer slots than the flood");
  for (const user of ["carol", "flood", "bob"]) limiter.release({ key: user });
  await places[3]?.turn;
  t.strictSame(
    order.slice(4),
    ["flood", "flood", "flood"],
    "with no one else waiting, the flood gets every slot",
  );
});

t.test("a key at its limit waits while others get the free slots", async (t) => {
  const limiter = new FairQueue({ slots: 3, maxPerKey: 2 });
  for (let count = 0; count < 2; count++) taken(limiter, "flood");
  t.equal(limiter.tryTake({ key: "flood" }), false);
  const place = joined(limiter, "flood");
  limiter.release({ key: taken(limiter, "bob") });
  t.equal(await Promise.race([place.turn, "waits"]), "waits");
  t.equal(limiter.busy, 2);
  limiter.release({ key: "flood" });
  t.equal(await place.turn, "flood");
});

t.test("a newcomer displaces the last waiter of the longest queue", async (t) => {
  const limiter = limiterOf(1, 4);
  const slot = taken(limiter, "flood");
  const flood = Array.from({ length: 4 }, () => joined(limiter, "flood"));
  t.equal(join(limiter, "flood"), undefined);
  const first = joined(limiter, "bob");
  t.equal(await flood[3]?.turn, undefined, "the last one of the flood is displaced");
  const second = joined(limiter, "bob");
  t.equal(await flood[2]?.turn, undefined);
  t.equal(join(limiter, "bob"), undefined, "both queues have the same length now");
  t.equal(join(limiter, "flood"), undefined);
  let holder = slot;
  for (const [place, user] of [
    [first, "bob"],
    [flood[0], "flood"],
    [second, "bob"],
    [flood[1], "flood"],
  ] as const) {
    limiter.release({ key: holder });
    t.equal(await place?.turn, user);
    holder = user;
  }
});

t.test("a wait ends after the timeout, and later waits go on", async (t) => {
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
  const limits = { slots: 1, maxWaiting: 9, timeoutMs: 100 };
  const limiter = new FairQueue({ ...limits, waits: { add: (seconds) => waits.push(seconds) } });
  const slot = taken(limiter, "alice");
  const first = ["alice", "alice", "bob"].map((user) => joined(limiter, user).turn);
  pass(60);
  const later = [joined(limiter, "carol"), joined(limiter, "dave")];
  pass(40);
  t.strictSame(await Promise.all(first), [undefined, undefined, undefined]);
  t.equal(limiter.waiting, 2);
  limiter.release({ key: slot });
  t.equal(await later[0]?.turn, "carol");
  pass(60);
  t.equal(await later[1]?.turn, undefined, "each wait has its own timeout");
  t.equal(limiter.waiting, 0);
  t.strictSame(waits, [0.1, 0.1, 0.1, 0.04, 0.1]);
});

const step = fc.record({
  kind: fc.constantFrom("ask", "ask", "release", "cancel"),
  user: fc.constantFrom("alice", "bob", "carol", "dave"),
  at: fc.nat(99),
});

t.test("slots are neither lost nor invented, and the user with the fewest goes next", async (t) => {
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
          if (limiter.tryTake({ key: user })) {
            if (waiting.length > 0) throw new Error("a waiter was skipped");
            held.push(user);
          } else {
            const place = join(limiter, user);
            if (place !== undefined) waiting.push({ user, place });
          }
        } else if (kind === "release") {
          const [given] = held.splice(at % Math.max(held.length, 1), 1);
          if (given !== undefined) limiter.release({ key: given });
        } else {
          waiting[at % Math.max(waiting.length, 1)]?.place.cancel();
        }
        const still: typeof waiting = [];
        for (const one of waiting) {
          const slot = await Promise.race([one.place.turn, Promise.resolve("waits" as const)]);
          if (slot === "waits") still.push(one);
          else if (slot !== undefined) {
            if (holds(one.user) > fewest) throw new Error("another user held fewer slots");
            if (still.some(({ user }) => user === one.user)) throw new Error("out of order");
            held.push(one.user);
          }
        }
        waiting = still;
        if (held.length > count) throw new Error("too many slots are held");
        if (held.length !== limiter.busy) throw new Error("the count of held slots is wrong");
        if (waiting.length > room) throw new Error("too many wait");
        if (waiting.length > 0 && held.length < count)
          throw new Error("a slot is idle while users wait");
      }
    },
  );
  await fc.assert(property, { numRuns: 300 });
  t.pass();
});
