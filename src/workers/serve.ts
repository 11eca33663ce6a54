/** A worker: a gateway that serves together with others, for the main process. */
import type { Membership } from "../gateway/shared.ts";
import { type RunningMember, startGateway } from "../gateway/start.ts";
import { openParentChannel } from "../ipc/parent.ts";
import { createLog, openLogStream } from "../observe/log.ts";
import { outliveErrors } from "../observe/uncaught-errors.ts";
import {
  type MainCalls,
  type RefusalFailure,
  refusalCodec,
  type WorkerCalls,
  type WorkerSettings,
} from "./calls.ts";
import { remoteShared } from "./remote.ts";

// A terminal that is gone takes no more lines; that is no reason to drop requests in flight.
process.stdout.on("error", () => {});
// However the main process ended: without it nothing is counted any more, so nothing is served.
process.once("disconnect", () => process.exit(1));

const running = Promise.withResolvers<RunningMember>();

function memberOf({ number, isFirst }: WorkerSettings): Membership {
  return {
    number,
    isFirst,
    shared: remoteShared(main),
    engine: () => main.ask("engine", undefined),
    claimPort: () => main.ask("claimPort", undefined),
    tellOthers: (file) => main.ask("tellOthers", file),
  };
}

async function start(settings: WorkerSettings) {
  const { number, loaded, chosenPassword, hasTerminal } = settings;
  const isTerminal = process.stdout.isTTY ?? false;
  const stream = await openLogStream(isTerminal);
  const log = createLog({ isTerminal }, stream).child({ worker: number });
  const member = memberOf(settings);
  const gateway = await startGateway(loaded, { log, chosenPassword, hasTerminal, member });
  outliveErrors(log);
  running.resolve(gateway);
  return gateway.facts;
}

const main = openParentChannel<MainCalls, WorkerCalls, RefusalFailure>(
  {
    start,
    // One that is still starting may have read the file before it was changed.
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
// It may have ended while this program was loaded.
if (!process.connected) process.exit(1);
