import t from "tap";
import { DatabaseLocks } from "../../src/engine/sqlite/store.ts";

/** The lock of one database. */
function lockOfOne() {
  const locks = new DatabaseLocks();
  return {
    shared: <T>(work: () => Promise<T>) => locks.shared("a", work),
    exclusive: <T>(work: () => Promise<T>) => locks.exclusive(["a"], work),
  };
}

t.test("readers share, a writer is alone, and each is served in its turn", async (t) => {
  const lock = lockOfOne();
  const events: string[] = [];
  const hold = (name: string) => {
    const { promise, resolve } = Promise.withResolvers<void>();
    const work = async (): Promise<void> => {
      events.push(`${name} in`);
      await promise;
      events.push(`${name} out`);
    };
    return { work, release: resolve };
  };
  const [first, second, writer, late] = [
    hold("first"),
    hold("second"),
    hold("writer"),
    hold("late"),
  ];
  const done = [
    lock.shared(first.work),
    lock.shared(second.work),
    lock.exclusive(writer.work),
    lock.shared(late.work),
  ];
  late.release();
  writer.release();
  second.release();
  await done[1];
  t.same(events, ["first in", "second in", "second out"]);
  first.release();
  await Promise.all(done);
  t.same(events.slice(3), ["first out", "writer in", "writer out", "late in", "late out"]);
});

t.test("work that fails gives the lock back", async (t) => {
  const lock = lockOfOne();
  await t.rejects(
    lock.exclusive(() => Promise.reject(new Error("broken"))),
    /broken/,
  );
  t.equal(await lock.exclusive(async () => "free"), "free");
});

t.test("no more than three readers hold the lock", async (t) => {
  const lock = lockOfOne();
  const { promise, resolve } = Promise.withResolvers<void>();
  let holders = 0;
  const held: number[] = [];
  const work = async (): Promise<void> => {
    holders += 1;
    held.push(holders);
    await promise;
    holders -= 1;
  };
  const done = Array.from({ length: 4 }, () => lock.shared(work));
  await new Promise(setImmediate);
  t.same(held, [1, 2, 3]);
  resolve();
  await Promise.all(done);
  t.equal(held.length, 4);
});

t.test("two who want the same databases in another order do not wait for each other", async (t) => {
  const locks = new DatabaseLocks();
  const done: string[] = [];
  const work = (name: string) => async (): Promise<void> => {
    await new Promise(setImmediate);
    done.push(name);
  };
  await Promise.all([
    locks.exclusive(["a", "b", "a"], work("first")),
    locks.exclusive(["b", "a"], work("second")),
    locks.shared("c", work("other")),
  ]);
  t.same(done, ["first", "other", "second"]);
});
