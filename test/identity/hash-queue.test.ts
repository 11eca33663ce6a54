import t from "tap";
import { type HashBounds, HashQueue, hashBounds } from "../../src/identity/hashing.ts";

const busy = { code: "login_busy", retryAfter: 1 };

/** A queue whose tasks end when the test says so, and in which they began in `begun`'s order. */
function observed(bounds: Partial<HashBounds> = {}) {
  const queue = new HashQueue({ atOnce: 1, memory: 100, waiting: 4, ...bounds });
  const begun: string[] = [];
  const ends = new Map<string, () => void>();
  const put = (
    address: string,
    name: string,
    options: { memory?: number; signal?: AbortSignal } = {},
  ) =>
    queue.run(options.memory ?? 1, { address, signal: options.signal }, async () => {
      begun.push(name);
      await new Promise<void>((resolve) => ends.set(name, resolve));
      return name;
    });
  const end = async (name: string) => {
    ends.get(name)?.();
    await new Promise(setImmediate);
  };
  return { put, begun, end };
}

t.test("addresses take turns, however many one of them has waiting", async (t) => {
  const { put, begun, end } = observed();
  const all = [put("a", "a1"), put("a", "a2"), put("a", "a3"), put("b", "b1")];
  await new Promise(setImmediate);
  for (const name of ["a1", "a2", "b1", "a3"]) await end(name);
  t.strictSame(await Promise.all(all), ["a1", "a2", "a3", "b1"]);
  t.strictSame(begun, ["a1", "a2", "b1", "a3"]);
});

t.test("who finds the queue full comes back later", async (t) => {
  const { put, begun, end } = observed({ waiting: 2 });
  const all = [put("a", "a1"), put("a", "a2"), put("a", "a3")];
  await t.rejects(put("a", "a4"), busy);
  for (const name of ["a1", "a2", "a3"]) await end(name);
  await Promise.all(all);
  t.strictSame(begun, ["a1", "a2", "a3"]);
});

t.test("the longest line gives its last place to an address with a shorter one", async (t) => {
  const { put, begun, end } = observed({ waiting: 3 });
  const first = put("a", "a1");
  const kept = [put("a", "a2"), put("a", "a3")];
  const displaced = t.rejects(put("a", "a4"), busy);
  const other = put("b", "b1");
  await displaced;
  await t.rejects(put("b", "b2"), busy, "lines of about the same length leave each other alone");
  for (const name of ["a1", "a2", "b1", "a3"]) await end(name);
  await Promise.all([first, ...kept, other]);
  t.strictSame(begun, ["a1", "a2", "b1", "a3"]);
});

t.test("a client that goes while it waits leaves its place to another", async (t) => {
  const { put, begun, end } = observed({ waiting: 1 });
  const gone = new AbortController();
  const first = put("a", "a1");
  const waiting = t.rejects(put("a", "a2", { signal: gone.signal }), busy);
  gone.abort();
  await waiting;
  const next = put("a", "a3");
  await t.rejects(put("a", "a4", { signal: gone.signal }), busy, "or never takes one");
  await end("a1");
  await end("a3");
  await Promise.all([first, next]);
  t.strictSame(begun, ["a1", "a3"]);
});

t.test("a client that goes while its task runs changes nothing", async (t) => {
  const { put, end } = observed();
  const gone = new AbortController();
  const first = put("a", "a1", { signal: gone.signal });
  await new Promise(setImmediate);
  gone.abort();
  await end("a1");
  t.equal(await first, "a1");
});

t.test("what runs together fits the memory, and what never fits runs alone", async (t) => {
  const { put, begun, end } = observed({ atOnce: 3, memory: 10 });
  const all = [
    put("a", "a1", { memory: 5 }),
    put("b", "b1", { memory: 5 }),
    put("c", "c1", { memory: 50 }),
    put("d", "d1", { memory: 1 }),
  ];
  await new Promise(setImmediate);
  t.strictSame(begun, ["a1", "b1"]);
  await end("a1");
  t.strictSame(begun, ["a1", "b1"], "and is not overtaken for ever by what is smaller");
  await end("b1");
  t.strictSame(begun, ["a1", "b1", "c1"]);
  await end("c1");
  await end("d1");
  await Promise.all(all);
});

t.test("a task that fails gives its place back", async (t) => {
  const queue = new HashQueue({ atOnce: 1, memory: 1, waiting: 1 });
  const failing = queue.run(1, { address: "a" }, () => Promise.reject(new Error("broken")));
  await t.rejects(failing, { message: "broken" });
  t.equal(await queue.run(1, { address: "a" }, async () => "next"), "next");
});

t.test("there are no more threads of hashes than cores, and never none", async (t) => {
  const costs = { memory: 65_536, time: 3, parallelism: 4 };
  const atOnce = (cores: number, parallelism: number) =>
    hashBounds({ ...costs, parallelism }, cores).atOnce;
  t.equal(atOnce(1, 4), 1);
  t.equal(atOnce(2, 4), 1);
  t.equal(atOnce(8, 4), 2);
  t.equal(atOnce(2, 1), 2);
  t.equal(atOnce(64, 1), 4, "nor more memory than four of them take");
  t.equal(hashBounds(costs, 64).memory, 4 * 65_536);
});
