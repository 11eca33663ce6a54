import t from "tap";
import { ReadWriteLock } from "../../src/engine/sqlite/lock.ts";

t.test("readers share, a writer is alone, and each is served in its turn", async (t) => {
  const lock = new ReadWriteLock();
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
  const lock = new ReadWriteLock();
  await t.rejects(
    lock.exclusive(() => Promise.reject(new Error("broken"))),
    /broken/,
  );
  t.equal(await lock.exclusive(async () => "free"), "free");
});
