/** A worker: a gateway process that serves requests under the main process. */
import { setTimeout as delay } from "node:timers/promises";
import type { MemberShared, Membership } from "../../app/shared.ts";
import { type RunningMember, startGateway } from "../../app/start.ts";
import { openParentChannel } from "../../core/base/ipc.ts";
import { Refusal } from "../../core/base/refusal.ts";
import { createLog, logUncaughtErrors, openLogStream } from "../../core/observe/log.ts";
import {
  type MainCalls,
  type MainChannel,
  type RefusalFailure,
  refusalCodec,
  type WorkerCalls,
  type WorkerSettings,
} from "./calls.ts";

const CONDITION_TIMEOUT_MS = 2000;

/** A worker whose main process hangs can serve no logins and count no requests. */
async function refuseLater(): Promise<never> {
  await delay(CONDITION_TIMEOUT_MS, undefined, { ref: false });
  throw new Refusal("busy", { detail: "the main process does not respond", retryAfter: 1 });
}

function remoteShared(main: MainChannel): MemberShared {
  return {
    throttle: {
      async begin(username, { address, isShared, signal }) {
        const attempt = await main.ask("beginLogin", { username, address, isShared }, signal);
        return { complete: (outcome) => main.ask("completeLogin", { attempt, outcome }) };
      },
      unlock: (username) => main.ask("unlockLogin", username),
    },
    hashing: {
      async run(costs, { signal, ...client }, work) {
        const turn = await main.ask("enterHashing", { costs, client }, signal);
        try {
          return await work((order) => main.ask("derive", { turn, order }));
        } finally {
          await main.ask("leaveHashing", turn);
        }
      },
      close: async () => {},
    },
    sessions: {
      open: (id, username) => main.ask("openSession", { id, username }),
      use: (id, username) => main.ask("useSession", { id, username }),
      end: (id) => main.ask("endSession", id),
    },
    streams: {
      async take(username) {
        const stream = await main.ask("openStream", username);
        return stream === undefined ? undefined : () => void main.ask("closeStream", stream);
      },
    },
    countRequests: (window) => main.ask("countRequests", window),
    configure: () => {},
    condition: () => Promise.race([main.ask("condition", undefined), refuseLater()]),
    note: () => {},
  };
}

// A closed terminal accepts no more lines; that is no reason to drop requests in flight.
process.stdout.on("error", () => {});
// Without the main process nothing is counted, so nothing may be served, however it ended.
process.once("disconnect", () => process.exit(1));

const running = Promise.withResolvers<RunningMember>();

function createMembership({ number, isFirst }: WorkerSettings): Membership {
  return {
    number,
    isFirst,
    shared: remoteShared(main),
    claimPort: () => main.ask("claimPort", undefined),
    broadcastReload: (file) => main.ask("broadcastReload", file),
  };
}

async function start(settings: WorkerSettings) {
  const { number, loaded, chosenPassword, hasTerminal } = settings;
  const stream = await openLogStream(process.stdout.isTTY ?? false);
  const log = createLog(stream).child({ worker: number });
  const member = createMembership(settings);
  const gateway = await startGateway(loaded, {
    log,
    chosenPassword,
    hasTerminal,
    member,
    loadConsole: () => import("../console/app.ts"),
  });
  logUncaughtErrors(log);
  running.resolve(gateway);
  return gateway.facts;
}

const main = openParentChannel<MainCalls, WorkerCalls, RefusalFailure>(
  {
    start,
    // A worker that is still starting may have read the file before the change.
    reload: async (file) => (await running.promise).reload(file),
    refresh: async () => (await running.promise).refresh(),
    configure: async (configuration) => (await running.promise).configure(configuration),
    metrics: async () => (await running.promise).metrics(),
    stopListening: async () => (await running.promise).stopListening(),
    async drain() {
      await (await running.promise).close();
      process.exit();
    },
  },
  refusalCodec,
);
// The main process may have ended while this program loaded.
if (!process.connected) process.exit(1);
