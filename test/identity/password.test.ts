import t from "tap";
import { parseAccessFile } from "../../src/core/access/parse.ts";
import type { HashCosts } from "../../src/core/access/password-hash.ts";
import {
  costsInUse,
  type Derive,
  deriveHere,
  type HashOrder,
} from "../../src/core/identity/hash.ts";
import {
  type HashBounds,
  HashQueue,
  hashBounds,
  RecentLogins,
} from "../../src/core/identity/hashing.ts";
import {
  hashPassword,
  requireUsablePassword,
  verifyPassword,
} from "../../src/core/identity/password.ts";
import { user } from "../access/kit.ts";

const configured = { memory: 128, time: 2, parallelism: 1 };
const lower = { memory: 64, time: 1, parallelism: 1 };
const higher = { memory: 256, time: 2, parallelism: 2 };
const PASSWORD = "correct horse";

/** Records the costs of each derived hash. */
function counted(): { derive: Derive; spent: HashCosts[] } {
  const spent: HashCosts[] = [];
  const derive = (order: HashOrder) => {
    spent.push(order.costs);
    return deriveHere(order);
  };
  return { derive, spent };
}

async function record(name: string, costs: HashCosts, lines = ""): Promise<string> {
  return user(name, `password_hash = "${await hashPassword(PASSWORD, costs)}"\n${lines}`);
}

t.test("a login derives the same hashes for every user", async (t) => {
  const file = [
    await record("usual", configured),
    await record("imported", lower),
    await record("early", lower, "disabled = true\n"),
    (await record("strong", higher)).replace("m=256,t=2,p=2", "p=2,m=256,t=2"),
    user("machine", ""),
  ];
  const snapshot = parseAccessFile(file.join(""), "access.toml");
  const costs = await costsInUse(snapshot, configured);
  t.equal(costs.length, 3, "each costs appear once, however they are spelled");
  for (const name of ["usual", "imported", "strong", "machine", "unknown"]) {
    const onFile = snapshot.users.get(name)?.passwordHash;
    for (const password of [PASSWORD, "a wrong one", ""]) {
      const { derive, spent } = counted();
      const isRight = await verifyPassword(password, onFile, costs, derive);
      t.equal(isRight, password === PASSWORD && onFile !== undefined, `${name}: ${password}`);
      t.strictSame(spent, costs);
    }
  }
});

t.test("without passwords on file, a login derives a hash at the configured costs", async (t) => {
  const snapshot = parseAccessFile(user("machine", ""), "access.toml");
  t.strictSame(await costsInUse(snapshot, configured), [configured]);
  t.equal(await costsInUse(snapshot, configured), await costsInUse(snapshot, configured));
});

t.test("a hash with costs that are not listed never matches", async (t) => {
  const hash = await hashPassword(PASSWORD, lower);
  t.notOk(await verifyPassword(PASSWORD, hash, [configured]));
});

t.test("an impossible password is not hashed", async (t) => {
  const hash = await hashPassword(PASSWORD, lower);
  for (const password of ["x".repeat(1025), "é".repeat(513), "\ud800 password"]) {
    const { derive, spent } = counted();
    t.notOk(await verifyPassword(password, hash, [lower], derive));
    t.strictSame(spent, []);
  }
});

t.test("every byte of a password counts", async (t) => {
  for (const password of ["before\0after", "x".repeat(1024), "  spaces  ", "пароль 密码 🔑"]) {
    requireUsablePassword(password);
    const hash = await hashPassword(password, lower);
    t.ok(await verifyPassword(password, hash, [lower]));
    t.notOk(await verifyPassword(password.slice(0, -1), hash, [lower]));
    t.notOk(await verifyPassword("before", hash, [lower]));
  }
});

t.test("composed and decomposed accents are the same password", async (t) => {
  const composed = "caf\u00e9 cr\u00e8me";
  const decomposed = composed.normalize("NFD");
  t.not(composed, decomposed);
  for (const chosen of [composed, decomposed]) {
    const hash = await hashPassword(chosen, lower);
    for (const typed of [composed, decomposed]) t.ok(await verifyPassword(typed, hash, [lower]));
    t.notOk(await verifyPassword("cafe creme", hash, [lower]), "accents count");
  }
  t.throws(() => requireUsablePassword("\u0065\u0301".repeat(7)), { code: "password_too_short" });
  t.notOk(
    await verifyPassword("ﬁle password", await hashPassword("file password", lower), [lower]),
    "a ligature stays a different character",
  );
});

const busy = { code: "login_busy", retryAfter: 1 };

/** A queue whose tasks run until `end`. */
function observed(bounds: Partial<HashBounds> = {}) {
  const queue = new HashQueue(
    { atOnce: 1, memory: 100, waiting: 4, ...bounds },
    new RecentLogins(),
  );
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

t.test("addresses take turns, however many tasks one of them queues", async (t) => {
  const { put, begun, end } = observed();
  const all = [put("a", "a1"), put("a", "a2"), put("a", "a3"), put("b", "b1")];
  await new Promise(setImmediate);
  for (const name of ["a1", "b1", "a2", "a3"]) await end(name);
  t.strictSame(await Promise.all(all), ["a1", "a2", "a3", "b1"]);
  t.strictSame(begun, ["a1", "b1", "a2", "a3"]);
});

t.test("a full queue refuses further tasks", async (t) => {
  const { put, begun, end } = observed({ waiting: 2 });
  const all = [put("a", "a1"), put("a", "a2"), put("a", "a3")];
  await t.rejects(put("a", "a4"), busy);
  for (const name of ["a1", "a2", "a3"]) await end(name);
  await Promise.all(all);
  t.strictSame(begun, ["a1", "a2", "a3"]);
});

t.test("a full queue drops the last task of the longest line", async (t) => {
  const { put, begun, end } = observed({ waiting: 3 });
  const first = put("a", "a1");
  const kept = [put("a", "a2"), put("a", "a3")];
  const displaced = t.rejects(put("a", "a4"), busy);
  const other = put("b", "b1");
  await displaced;
  await t.rejects(put("b", "b2"), busy, "a line of about the same length loses nothing");
  for (const name of ["a1", "b1", "a2", "a3"]) await end(name);
  await Promise.all([first, ...kept, other]);
  t.strictSame(begun, ["a1", "b1", "a2", "a3"]);
});

t.test("a client that disconnects while it waits frees its place", async (t) => {
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

t.test("a disconnect does not affect a running task", async (t) => {
  const { put, end } = observed();
  const gone = new AbortController();
  const first = put("a", "a1", { signal: gone.signal });
  await new Promise(setImmediate);
  gone.abort();
  await end("a1");
  t.equal(await first, "a1");
});

t.test("concurrent tasks fit into memory, and a task that never fits runs by itself", async (t) => {
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
  t.strictSame(begun, ["a1", "b1"], "smaller tasks do not overtake it forever");
  await end("b1");
  t.strictSame(begun, ["a1", "b1", "c1"]);
  await end("c1");
  await end("d1");
  await Promise.all(all);
});

t.test("a failed task frees its place", async (t) => {
  const queue = new HashQueue({ atOnce: 1, memory: 1, waiting: 1 }, new RecentLogins());
  const failing = queue.run(1, { address: "a" }, () => Promise.reject(new Error("broken")));
  await t.rejects(failing, { message: "broken" });
  t.equal(await queue.run(1, { address: "a" }, async () => "next"), "next");
});

t.test("hashing uses no more threads than cores, but at least one", async (t) => {
  const costs = { memory: 65_536, time: 3, parallelism: 4 };
  const atOnce = (cores: number, parallelism: number) =>
    hashBounds({ ...costs, parallelism }, cores).atOnce;
  t.strictSame([atOnce(1, 4), atOnce(2, 4), atOnce(8, 4), atOnce(2, 1)], [1, 1, 2, 2]);
  t.equal(atOnce(64, 1), 4, "at most four, to limit memory");
  t.equal(hashBounds(costs, 64).memory, 4 * 65_536);
});
