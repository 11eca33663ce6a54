import { setImmediate as nextTurn } from "node:timers/promises";
import type { Test } from "tap";
import t from "tap";
import {
  type Call,
  Channel,
  ChannelClosedError,
  ChildProgram,
  type Handlers,
  type HeartbeatLimits,
  type Message,
  messageCodec,
  type NoCalls,
} from "../../src/core/base/ipc.ts";
import { Refusal } from "../../src/core/base/refusal.ts";
import { type RefusalFailure, refusalCodec } from "../../src/features/workers/calls.ts";
import type { EchoCalls } from "./echo-program.ts";

type Sums = {
  readonly add: Call<readonly number[], number>;
  readonly wait: Call<undefined, string>;
};

/** Two ends that exchange copies of their messages, in order and asynchronously. */
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

t.test("each call gets its own answer", async (t) => {
  const { asking } = connect({ add: sum, wait: () => "never" });
  const answers = await Promise.all([
    asking.ask("add", [1, 2]),
    asking.ask("wait", undefined),
    asking.ask("add", []),
  ]);
  t.strictSame(answers, [3, "never", 0]);
});

t.test("a call that is told gets no answer, even if it fails", async (t) => {
  const told: (readonly number[])[] = [];
  const sent: unknown[] = [];
  const answering = new Channel<Sums, NoCalls, RefusalFailure>({
    handlers: {
      add: (numbers) => told.push(numbers),
      wait() {
        throw new Error("a fault");
      },
    },
    errors: refusalCodec,
    send: (message) => sent.push(message),
  });
  const send = (message: Message<Sums, RefusalFailure>) => answering.receive(message);
  const options = { handlers: {}, errors: refusalCodec, send };
  const telling = new Channel<NoCalls, Sums, RefusalFailure>(options);
  telling.tell("add", [1, 2]);
  telling.tell("wait", undefined);
  telling.tell("add", [3]);
  await nextTurn();
  t.same(told, [[1, 2], [3]]);
  t.same(sent, []);
});

t.test("a Refusal arrives complete, any other error with its message", async (t) => {
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

t.test("an aborted call is cancelled at the other end, and its answer still arrives", async (t) => {
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

t.test("closing the channel rejects open calls and aborts their handlers", async (t) => {
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

const name = new URL("./echo-program.ts", import.meta.url);

function start(
  t: Test,
  heartbeat: HeartbeatLimits = { maxMissed: 60, maxMissedAtStart: 60 },
  execArgv: string[] = [],
) {
  const program = new ChildProgram<NoCalls, EchoCalls, string>(name, {
    fork: { execArgv },
    handlers: {},
    errors: messageCodec,
    heartbeat,
  });
  t.teardown(() => program.kill());
  return program;
}

t.test("a program answers a call or reports its error", async (t) => {
  const program = start(t);
  t.equal(await program.ask("echo", "hello"), "hello");
  await t.rejects(program.ask("refuse", "not that"), new Error("not that"));
  t.ok(program.isUsable);
});

t.test("the time that a program takes to start does not count towards a deadline", async (t) => {
  const startsLate = "data:text/javascript,await new Promise((done) => setTimeout(done, 2000))";
  const program = start(t, undefined, ["--import", startsLate]);
  const onMissed = () => new Error("too late");
  t.equal(await program.ask("echo", "in time", { ms: 1500, onMissed }), "in time");
});

t.test("a program that misses a deadline is killed, and its callers get the reason", async (t) => {
  const program = start(t);
  const other = program.ask("ignore", undefined);
  const onMissed = () => new Error("too late");
  const late = program.ask("standStill", undefined, { ms: 1, onMissed });
  await Promise.all([
    t.rejects(late, new Error("too late")),
    t.rejects(other, new Error("too late")),
  ]);
  t.match(await program.ended, { signal: "SIGKILL" });
  t.notOk(program.isUsable);
  await t.rejects(program.ask("echo", "hello"), new Error("too late"));
});

t.test("a program without heartbeats is killed", async (t) => {
  const program = start(t, { maxMissed: 1, maxMissedAtStart: 60 });
  await program.ask("echo", "hello");
  await t.rejects(
    program.ask("standStill", undefined),
    new ChannelClosedError("it did not respond"),
  );
  t.match(await program.ended, { signal: "SIGKILL", reason: "it did not respond" });
});

t.test("a closed program ends by itself, and a stuck one is killed", async (t) => {
  const idle = start(t);
  await idle.ask("echo", "hello");
  await idle.close(60_000);
  t.match(await idle.ended, { code: 7, signal: null });
  const busy = start(t);
  const answer = busy.ask("standStill", undefined);
  await Promise.all([
    t.rejects(answer, new ChannelClosedError("it ended: SIGKILL")),
    busy.close(1),
  ]);
});

t.test("the callers of a program that dies learn how it ended", async (t) => {
  const program = start(t);
  await program.ask("echo", "hello");
  const answer = program.ask("ignore", undefined);
  process.kill(program.pid ?? 0, "SIGKILL");
  await t.rejects(answer, new ChannelClosedError("it ended: SIGKILL"));
});
