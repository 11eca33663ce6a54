import t, { type Test } from "tap";
import { ChannelClosedError, messageCodec, type NoCalls } from "../../src/ipc/channel.ts";
import { ChildProgram } from "../../src/ipc/child-program.ts";
import type { HeartbeatLimits } from "../../src/ipc/heartbeat.ts";
import type { EchoCalls } from "./echo-program.ts";

const name = new URL("./echo-program.ts", import.meta.url);

function start(t: Test, heartbeat?: HeartbeatLimits) {
  const program = new ChildProgram<NoCalls, EchoCalls, string>(name, {
    fork: { execArgv: [] },
    handlers: {},
    errors: messageCodec,
    ...(heartbeat === undefined ? {} : { heartbeat }),
  });
  t.teardown(() => program.kill());
  return program;
}

t.test("a program answers, and says so when it cannot", async (t) => {
  const program = start(t);
  t.equal(await program.ask("echo", "hello"), "hello");
  await t.rejects(program.ask("refuse", "not that"), new Error("not that"));
  t.ok(program.isUsable);
});

t.test("a program that is late is ended, and its callers are told why", async (t) => {
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

t.test("a program that gives no sign of life is ended while it owes an answer", async (t) => {
  const program = start(t, { missable: 1, missableAtStart: 60 });
  await program.ask("echo", "hello");
  await t.rejects(
    program.ask("standStill", undefined),
    new ChannelClosedError("it did not answer"),
  );
  t.match(await program.ended, { signal: "SIGKILL", reason: "it did not answer" });
});

t.test("a program that is closed ends by itself, and one that stands still is ended", async (t) => {
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

t.test("whoever waits for a program that dies is told how it ended", async (t) => {
  const program = start(t);
  await program.ask("echo", "hello");
  const answer = program.ask("ignore", undefined);
  process.kill(program.pid ?? 0, "SIGKILL");
  await t.rejects(answer, new ChannelClosedError("it ended: SIGKILL"));
});
