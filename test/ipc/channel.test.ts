import { setImmediate as nextTurn } from "node:timers/promises";
import t from "tap";
import {
  type Call,
  Channel,
  ChannelClosedError,
  type Handlers,
  type Message,
  type NoCalls,
} from "../../src/ipc/channel.ts";
import { Refusal } from "../../src/refusal.ts";
import { type RefusalFailure, refusalCodec } from "../../src/workers/calls.ts";

type Sums = {
  readonly add: Call<readonly number[], number>;
  readonly wait: Call<undefined, string>;
};

/** Two ends that hand each other copies of their messages, in order and later. */
function connect(handlers: Handlers<Sums>) {
  const later = (act: () => void) => void nextTurn().then(act);
  const errors = refusalCodec;
  const asking = new Channel<NoCalls, Sums, RefusalFailure>({
    handlers: {},
    errors,
    send(message) {
      const copy = structuredClone(message);
      later(() => answering.receive(copy));
    },
  });
  const answering: Channel<Sums, NoCalls, RefusalFailure> = new Channel({
    handlers,
    errors,
    send(message: Message<NoCalls, RefusalFailure>) {
      const copy = structuredClone(message);
      later(() => asking.receive(copy));
    },
  });
  return { asking, answering };
}

const sum = (numbers: readonly number[]) => numbers.reduce((all, one) => all + one, 0);

t.test("each question gets its own answer", async (t) => {
  const { asking } = connect({ add: sum, wait: () => "never" });
  const answers = await Promise.all([
    asking.ask("add", [1, 2]),
    asking.ask("wait", undefined),
    asking.ask("add", []),
  ]);
  t.strictSame(answers, [3, "never", 0]);
});

t.test("a refusal arrives as it was thrown, and of any other error its message", async (t) => {
  const { asking } = connect({
    add() {
      throw new Refusal("too_many_attempts", { retryAfter: 7, detail: "for the log" });
    },
    async wait() {
      throw new TypeError("a fault");
    },
  });
  const refusal = asking.ask("add", []);
  const seen = { code: "too_many_attempts", status: 429, retryAfter: 7, detail: "for the log" };
  await t.rejects(refusal, seen);
  t.ok(await refusal.catch((error: unknown) => error instanceof Refusal));
  await t.rejects(asking.ask("wait", undefined), new Error("a fault"));
});

t.test("whoever waits no more tells so, and still learns what came of it", async (t) => {
  const { asking } = connect({
    add: sum,
    wait: (_, signal) =>
      new Promise((resolve) => signal.addEventListener("abort", () => resolve("given up"))),
  });
  const leaving = new AbortController();
  const answer = asking.ask("wait", undefined, leaving.signal);
  await nextTurn();
  leaving.abort();
  t.equal(await answer, "given up");
  t.equal(await asking.ask("wait", undefined, AbortSignal.abort()), "given up");
});

t.test("when the other end is gone nobody waits, here or there", async (t) => {
  const ended = Promise.withResolvers<void>();
  const { asking, answering } = connect({
    add: sum,
    async wait(_, signal) {
      signal.addEventListener("abort", () => ended.resolve());
      await ended.promise;
      return "late";
    },
  });
  const answer = asking.ask("wait", undefined);
  await nextTurn();
  await nextTurn();
  asking.close();
  answering.close();
  await t.rejects(answer, new ChannelClosedError());
  await ended.promise;
  await t.rejects(asking.ask("add", []), new ChannelClosedError());
});
