import { setImmediate as nextTurn } from "node:timers/promises";
import t, { type Test } from "tap";
import { configurationSchema } from "../../src/config/schema.ts";
import { createShared } from "../../src/gateway/shared.ts";
import { addressLimit } from "../../src/oauth/server/http.ts";
import { createLog } from "../../src/observe/log.ts";
import { openWorkerHandlers } from "../../src/workers/calls.ts";

const never = new AbortController().signal;
const costs = [{ memory: 64, time: 1, parallelism: 1 }];
const order = { password: "a password", salt: Buffer.alloc(16), costs: costs[0], length: 32 };

/** What two workers share. */
function scene(t: Test) {
  const auth = {
    ...{ max_failures_per_user_and_address: 2, argon2_parallelism: 64 },
    argon2_memory_cost: 512,
  };
  const opened = new AsyncDisposableStack();
  t.teardown(() => opened.disposeAsync());
  const configuration = configurationSchema.parse({ auth });
  const loaded = { configuration, file: undefined, serviceDirectory: "", warnings: [] };
  const log = createLog({ write() {} });
  const shared = createShared(loaded, log, opened);
  const unused = () => {
    throw new Error("not asked for");
  };
  const common = {
    ...{ engine: unused, claimPort: unused, tellOthers: unused },
    countRequests: shared.countRequests,
    condition: shared.condition,
  };
  return { one: openWorkerHandlers(shared, common), other: openWorkerHandlers(shared, common) };
}

const login = { username: "alice", address: "192.0.2.1", isShared: false };

t.test("a worker that ends in the middle of a guess has made a wrong one", async (t) => {
  const { one, other } = scene(t);
  await one.handlers.beginLogin(login, never);
  await one.handlers.beginLogin(login, never);
  const waiting = other.handlers.beginLogin(login, never);
  one.close();
  await t.rejects(Promise.resolve(waiting), { code: "too_many_attempts" });
});

t.test("a turn of the hashing process is given back by whoever ends", async (t) => {
  const { one, other } = scene(t);
  const turn = await one.handlers.enterHashing({ costs, client: { address: "a" } }, never);
  const next = other.handlers.enterHashing({ costs, client: { address: "b" } }, never);
  let isIn = false;
  void Promise.resolve(next).then(() => {
    isIn = true;
  });
  await nextTurn();
  t.notOk(isIn, "one at a time");
  const [cost] = costs;
  if (cost === undefined) throw new Error("no costs");
  t.equal(
    (await one.handlers.derive({ turn, order: { ...order, costs: cost } }, never)).length,
    32,
  );
  one.close();
  const last = await next;
  other.handlers.leaveHashing(last, never);
  t.throws(() => other.handlers.derive({ turn: last, order: { ...order, costs: cost } }, never));
});

t.test("a session is known to all, and a stream is counted until its worker ends", async (t) => {
  const { one, other } = scene(t);
  t.ok(await one.handlers.openSession({ id: "s", username: "alice" }, never));
  t.ok(await other.handlers.useSession({ id: "s", username: "alice" }, never));
  t.notOk(await other.handlers.openSession({ id: "s", username: "bob" }, never));
  for (let count = 0; count < 100; count++) await one.handlers.openStream("alice", never);
  t.equal(await other.handlers.openStream("alice", never), undefined);
  one.close();
  t.ok(await other.handlers.openStream("alice", never));
});

t.test("requests of an address are counted together, under each name by itself", async (t) => {
  const { one, other } = scene(t);
  const origin = { address: "192.0.2.1", isShared: false };
  const limitOf = ({ handlers }: typeof one, name: string) =>
    addressLimit(async (window) => handlers.countRequests(window, never), name, 1, 60);
  t.equal(await limitOf(one, "x")(origin), 0);
  t.ok((await limitOf(other, "x")(origin)) > 0);
  t.equal(await limitOf(other, "y")(origin), 0);
  t.equal(await limitOf(other, "x")({ ...origin, isShared: true }), 0);
});
