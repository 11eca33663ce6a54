import { setTimeout as delay } from "node:timers/promises";
import type { DestinationStream } from "pino";
import type { LoadedConfiguration } from "../config/load.ts";
import type { StartOptions } from "../gateway/open-gateway.ts";
import { openSharedCounts } from "../gateway/open-store.ts";
import { createShared, type SharedHere } from "../gateway/shared.ts";
import type { RunningGateway } from "../gateway/start.ts";
import { requireFree } from "../gateway/system-limits.ts";
import { createHashMetrics, MetricsAggregation, serveMetrics } from "../observe/metrics.ts";
import { configurationOf } from "./count.ts";
import { type CommonCalls, openWorkerHandlers } from "./rpc-handlers.ts";
import { Supervisor } from "./supervisor.ts";
import { Worker } from "./worker.ts";

/** Milliseconds that a worker has to tell its metrics. */
const METRICS_TIMEOUT_MS = 2000;

export interface WorkersOptions extends StartOptions {
  /** How many processes serve. */
  readonly count: number;
  /** Takes the lines of the workers' logs. */
  readonly output: DestinationStream;
}

/** The main process among those with metrics; workers are numbered from 1. */
const MAIN = 0;

/** The one port of all workers, which the first that listens takes. */
class SharedPort {
  readonly #host: string;
  #port: number;
  #isTaken = false;
  /** Why it could not be taken. */
  failure: unknown;

  constructor({ host, port }: LoadedConfiguration["configuration"]["server"]) {
    this.#host = host;
    this.#port = port;
  }

  /** The port to listen on, 0 for any. @throws the system's error if it is another's */
  async claim(): Promise<number> {
    if (this.#isTaken || this.#port === 0) return this.#port;
    try {
      await requireFree(this.#host, this.#port);
    } catch (error) {
      this.failure = error;
      throw error;
    }
    return this.#port;
  }

  /** The first worker listens. */
  takenAt(url: string): void {
    this.#isTaken = true;
    const { port, protocol } = new URL(url);
    this.#port = Number(port || (protocol === "https:" ? 443 : 80));
  }
}

async function listenForMetrics(
  address: string,
  supervisor: Supervisor,
  gathered: MetricsAggregation,
  { hashing }: SharedHere,
): Promise<{ close(): void }> {
  const own = createHashMetrics(hashing.metrics);
  return serveMetrics(address, async () => {
    const answers = Array.from(supervisor.serving, async (worker) => {
      gathered.note(worker.number, await worker.ask("metrics", undefined));
    });
    // Of one that does not answer now, what it said last is shown.
    const patience = delay(METRICS_TIMEOUT_MS, undefined, { ref: false });
    await Promise.race([Promise.allSettled(answers), patience]);
    gathered.note(MAIN, await own.values());
    return gathered.text();
  });
}

async function open(
  loaded: LoadedConfiguration,
  { count, log, output, chosenPassword, hasTerminal, engine }: WorkersOptions,
  opened: AsyncDisposableStack,
): Promise<Omit<RunningGateway, "close">> {
  let { configuration } = loaded;
  const { server, metrics } = configuration;
  const counts = await openSharedCounts(configuration, undefined, opened);
  const shared = createShared(loaded, log, opened, counts);
  const port = new SharedPort(server);
  const gathered = new MetricsAggregation();

  function commonCalls(number: number): CommonCalls {
    return {
      countRequests: shared.countRequests,
      condition: shared.condition,
      engine,
      claimPort: () => port.claim(),
      tellOthers: (file) => supervisor.reload(file, number),
    };
  }

  const supervisor = new Supervisor({
    count,
    log,
    open: (number) => new Worker(number, openWorkerHandlers(shared, commonCalls(number)), output),
    settingsOf(number, isFirst) {
      return {
        ...{ number, isFirst, hasTerminal },
        loaded: { ...loaded, configuration: configurationOf(configuration, count, number) },
        chosenPassword: isFirst ? chosenPassword : undefined,
      };
    },
    onListening: (url) => port.takenAt(url),
    onEnded: (number) => void gathered.retire(number),
  });
  opened.defer(() => supervisor.close(configuration.server.shutdown_grace * 1000));
  const facts = await supervisor.start().catch((error: unknown) => {
    throw port.failure ?? error;
  });
  if (metrics.listen !== undefined) {
    const listener = await listenForMetrics(metrics.listen, supervisor, gathered, shared);
    opened.defer(() => listener.close());
  }
  return {
    facts,
    refresh: () => supervisor.refresh(),
    note: shared.note,
    async configure(next) {
      configuration = next;
      shared.configure(next);
      await supervisor.configure((number) => configurationOf(next, count, number));
    },
  };
}

/**
 * Starts a gateway that is served by several processes. This one answers no request: it starts the
 * others, again and again if need be, and does for all of them what must be done once.
 *
 * @throws Error if it does not start
 */
export async function startWorkers(
  loaded: LoadedConfiguration,
  options: WorkersOptions,
): Promise<RunningGateway> {
  await using opened = new AsyncDisposableStack();
  const running = await open(loaded, options, opened);
  const kept = opened.move();
  return { ...running, close: () => kept.disposeAsync() };
}
