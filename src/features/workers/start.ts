import { fstatSync } from "node:fs";
import type { Readable } from "node:stream";
import { setTimeout as delay } from "node:timers/promises";
import type { DestinationStream } from "pino";
import { openSharedCounts, type StartOptions } from "../../app/open-gateway.ts";
import { createShared, type LocalShared, type SharedFile } from "../../app/shared.ts";
import type { GatewayFacts, RunningGateway } from "../../app/start.ts";
import { errorMessage } from "../../core/base/client-error.ts";
import {
  ChannelClosedError,
  ChildProgram,
  type Ending,
  siblingModule,
} from "../../core/base/ipc.ts";
import type { LoadedConfiguration } from "../../core/config/load.ts";
import type { Configuration } from "../../core/config/schema.ts";
import { requireFree } from "../../core/http/system-limits.ts";
import type { Log } from "../../core/observe/log.ts";
import { HashingMetrics, MetricsAggregation, serveMetrics } from "../../core/observe/metrics.ts";
import { portOf } from "../../core/upstream/target.ts";
import {
  type CommonCalls,
  type MainCalls,
  openWorkerHandlers,
  type RefusalFailure,
  refusalCodec,
  type WorkerCalls,
  type WorkerHandlers,
  type WorkerSettings,
} from "./calls.ts";
import { workerConfiguration } from "./count.ts";

/** Flags that make Node load modules before a program, for example an SDK for traces. */
const preload = /^(?:--import|--require|-r)(?<value>=.*)?$/s;

/** Without other flags of `process.execArgv`, such as a debugger's port, which fit one process. */
export function preloadFlags(flags: readonly string[]): string[] {
  const kept: string[] = [];
  for (const [at, flag] of flags.entries()) {
    const match = preload.exec(flag);
    if (match === null) continue;
    kept.push(flag);
    const next = flags[at + 1];
    if (match.groups?.value === undefined && next !== undefined) kept.push(next);
  }
  return kept;
}

/** Forwards text in whole lines. An unfinished last line is dropped. */
export function forwardLines(source: Readable, output: DestinationStream): void {
  let begun = "";
  source.setEncoding("utf8").on("data", (text: string) => {
    const end = text.lastIndexOf("\n") + 1;
    if (end === 0) {
      begun += text;
      return;
    }
    output.write(begun + text.slice(0, end));
    begun = text.slice(end);
  });
}

/**
 * True if several processes may write to standard output. Files and terminals take each line whole,
 * but in a full pipe or socket lines would get mixed up.
 */
function mayShareOutput(): boolean {
  const output = fstatSync(1);
  return !output.isFIFO() && !output.isSocket();
}

/** Six missed seconds leave time to start another worker within ten. */
const HEARTBEAT = { maxMissed: 6, maxMissedAtStart: 60 };

class Worker extends ChildProgram<WorkerCalls, MainCalls, RefusalFailure> {
  /** From 1. */
  readonly number: number;

  /** @param output takes the log lines of a worker that cannot write them itself */
  constructor(number: number, { handlers, close }: WorkerHandlers, output: DestinationStream) {
    super(siblingModule(import.meta.url, "program"), {
      fork: {
        // The second flag is the one in `bin/gatehouse.js`.
        execArgv: [...preloadFlags(process.execArgv), "--no-allocation-site-pretenuring"],
        stdio: ["ignore", mayShareOutput() ? "inherit" : "pipe", "inherit", "ipc"],
      },
      handlers,
      errors: refusalCodec,
      heartbeat: HEARTBEAT,
    });
    this.number = number;
    if (this.output !== null) forwardLines(this.output, output);
    void this.ended.then(close);
  }
}

/** Pause before restarting a worker that died early. */
const FIRST_RESTART_MS = 100;
const LAST_RESTART_MS = 5000;
/** A worker that runs for this long did not die early. */
const STABLE_AFTER_MS = 5000;
/** Time to exit, in addition to the grace period. */
const EXIT_MARGIN_MS = 5000;
/** A worker that does not respond for this long is considered stuck. */
const UNRESPONSIVE_MS = 30_000;

/**
 * Signals that a terminal or a supervisor sends to the whole group; a running worker ignores them.
 */
const groupSignals: ReadonlySet<NodeJS.Signals> = new Set(["SIGINT", "SIGTERM", "SIGHUP"]);

interface SupervisorOptions {
  readonly count: number;
  readonly log: Log;
  readonly open: (number: number) => Worker;
  readonly settingsOf: (number: number, isFirst: boolean) => WorkerSettings;
  /** Called with the first worker's address, before the others start. */
  readonly onListening: (url: string) => void;
  readonly onEnded: (number: number) => void;
}

class Supervisor {
  readonly #options: SupervisorOptions;
  readonly #workers = new Map<number, Worker>();
  readonly #serving = new Set<Worker>();
  readonly #closing = new AbortController();

  constructor(options: SupervisorOptions) {
    this.#options = options;
  }

  get serving(): Iterable<Worker> {
    return this.#serving;
  }

  /**
   * Starts all workers. The first one starts before the others, since it creates what a first start
   * creates.
   *
   * @returns the facts that the first worker reports
   * @throws Error if one of them does not start
   */
  async start(): Promise<GatewayFacts> {
    const first = await this.#start(1, true);
    this.#options.onListening(first.facts.url);
    const others = Array.from({ length: this.#options.count - 1 }, (_, at) => this.#start(at + 2));
    for (const { worker } of [first, ...(await Promise.all(others))]) void this.#keep(worker);
    return first.facts;
  }

  /** Starts a worker, again if a signal to the whole group killed it while it was loading. */
  async #start(number: number, isFirst = false) {
    for (;;) {
      const worker = this.#open(number);
      try {
        return { worker, facts: await this.#begin(worker, isFirst) };
      } catch (error) {
        const { signal } = await worker.ended;
        if (typeof signal !== "string" || !groupSignals.has(signal)) throw error;
      }
    }
  }

  /** Makes all workers but one reload a file; resolves when each has done so or is gone. */
  async reload(file: SharedFile, except: number): Promise<void> {
    const others = [...this.#workers.values()].filter(({ number }) => number !== except);
    await this.#callAll(others, "reload", () => file);
  }

  async refresh(): Promise<void> {
    // Starting workers too: they may have opened a file before it was moved away.
    await this.#callAll([...this.#workers.values()], "refresh", () => undefined);
  }

  /** @param configurationOf returns the configuration of a worker by number */
  async configure(configurationOf: (number: number) => Configuration): Promise<void> {
    const workers = [...this.#workers.values()];
    await this.#callAll(workers, "configure", ({ number }) => configurationOf(number));
  }

  /**
   * Lets requests in flight finish and ends all workers.
   *
   * @param grace milliseconds for those requests
   */
  async close(grace: number): Promise<void> {
    this.#closing.abort();
    // A starting worker may already have requests, so it drains after its start.
    const workers = [...this.#workers.values()];
    // A client that one worker turns away must not reach another that is about to stop listening.
    await this.#callAll(workers, "stopListening", () => undefined);
    await this.#callAll(workers, "drain", () => undefined, grace + EXIT_MARGIN_MS);
    await Promise.all(workers.map(({ ended }) => ended));
  }

  /**
   * Sends workers a call without a result. A stuck worker is killed, since it must not answer
   * clients with old state. A worker that is gone is skipped.
   */
  async #callAll<Name extends Exclude<keyof MainCalls, "start" | "metrics">>(
    workers: readonly Worker[],
    name: Name,
    askOf: (worker: Worker) => MainCalls[Name]["ask"],
    ms = UNRESPONSIVE_MS,
  ): Promise<void> {
    const calls = workers.map(async (worker) => {
      const onMissed = () => {
        const { number } = worker;
        this.#options.log.error({ worker: number }, "a worker does not respond: it is killed");
        return new ChannelClosedError();
      };
      try {
        await worker.ask(name, askOf(worker), { ms, onMissed });
      } catch (error) {
        if (!(error instanceof ChannelClosedError)) throw error;
      }
    });
    await Promise.all(calls);
  }

  #open(number: number): Worker {
    const worker = this.#options.open(number);
    this.#workers.set(number, worker);
    void worker.ended.then(() => {
      this.#serving.delete(worker);
      if (this.#workers.get(number) === worker) this.#workers.delete(number);
      this.#options.onEnded(number);
    });
    return worker;
  }

  /** @throws Error if the worker does not start; its process is then killed */
  async #begin(worker: Worker, isFirst = false): Promise<GatewayFacts> {
    try {
      const facts = await worker.ask("start", this.#options.settingsOf(worker.number, isFirst));
      this.#serving.add(worker);
      return facts;
    } catch (error) {
      await worker.kill();
      throw error;
    }
  }

  async #keep(worker: Worker): Promise<void> {
    const { log } = this.#options;
    const { number } = worker;
    let pause = 0;
    let current = worker;
    while (!this.#closing.signal.aborted) {
      const startedAt = performance.now();
      const ending = await this.#serve(current);
      if (this.#closing.signal.aborted) return;
      if (performance.now() - startedAt > STABLE_AFTER_MS) pause = 0;
      log.error(
        { worker: number, ...ending, restartInMs: pause },
        "a worker exited: a new one is started",
      );
      await delay(pause, undefined, { signal: this.#closing.signal }).catch(() => undefined);
      pause = Math.min(Math.max(FIRST_RESTART_MS, 2 * pause), LAST_RESTART_MS);
      if (this.#closing.signal.aborted) return;
      current = this.#open(number);
    }
  }

  async #serve(worker: Worker): Promise<Ending> {
    if (this.#serving.has(worker)) return worker.ended;
    try {
      await this.#begin(worker);
      this.#options.log.info({ worker: worker.number, pid: worker.pid }, "a worker serves again");
    } catch (error) {
      if (!(error instanceof ChannelClosedError)) {
        return { reason: errorMessage(error) };
      }
    }
    return worker.ended;
  }
}

const METRICS_TIMEOUT_MS = 2000;

interface WorkersOptions extends StartOptions {
  readonly count: number;
  readonly output: DestinationStream;
}

/** Number of the main process in the metrics; workers count from 1. */
const MAIN = 0;

/** The port of all workers, taken by the first that listens. */
function sharePort({ host, port: configured }: Configuration["server"]) {
  let taken: number | undefined;
  let failure: unknown;
  return {
    get failure() {
      return failure;
    },
    /** The port to listen on, 0 for any. @throws the system's error if another process has it */
    async claim(): Promise<number> {
      if (taken !== undefined || configured === 0) return taken ?? 0;
      try {
        await requireFree(host, configured);
      } catch (error) {
        failure = error;
        throw error;
      }
      return configured;
    },
    takenAt(url: string): void {
      taken = portOf(new URL(url));
    },
  };
}

async function listenForMetrics(
  address: string,
  supervisor: Supervisor,
  gathered: MetricsAggregation,
  { hashing }: LocalShared,
  log: Log,
): Promise<{ close(): void }> {
  const own = new HashingMetrics();
  own.exportHashing(hashing.metrics);
  return serveMetrics(address, log, async () => {
    const answers = Array.from(supervisor.serving, async (worker) => {
      gathered.note(worker.number, await worker.ask("metrics", undefined));
    });
    const timeout = delay(METRICS_TIMEOUT_MS, undefined, { ref: false });
    await Promise.race([Promise.allSettled(answers), timeout]);
    gathered.note(MAIN, await own.values());
    return gathered.text();
  });
}

async function open(
  loaded: LoadedConfiguration,
  { count, log, output, chosenPassword, hasTerminal }: WorkersOptions,
  opened: AsyncDisposableStack,
): Promise<Omit<RunningGateway, "close">> {
  let { configuration } = loaded;
  const { server, metrics } = configuration;
  const counts = await openSharedCounts(configuration, undefined, opened);
  const shared = createShared(loaded, log, opened, counts);
  const port = sharePort(server);
  const gathered = new MetricsAggregation();

  function commonCalls(number: number): CommonCalls {
    return {
      countRequests: shared.countRequests,
      condition: shared.condition,
      claimPort: port.claim,
      broadcastReload: (file) => supervisor.reload(file, number),
    };
  }

  const supervisor = new Supervisor({
    count,
    log,
    open: (number) => new Worker(number, openWorkerHandlers(shared, commonCalls(number)), output),
    settingsOf(number, isFirst) {
      return {
        number,
        isFirst,
        hasTerminal,
        loaded: { ...loaded, configuration: workerConfiguration(configuration, count, number) },
        chosenPassword: isFirst ? chosenPassword : undefined,
      };
    },
    onListening: port.takenAt,
    onEnded: (number) => void gathered.retire(number),
  });
  opened.defer(() => supervisor.close(configuration.server.shutdown_grace * 1000));
  const facts = await supervisor.start().catch((error: unknown) => {
    throw port.failure ?? error;
  });
  if (metrics.listen !== undefined) {
    const listener = await listenForMetrics(metrics.listen, supervisor, gathered, shared, log);
    opened.defer(() => listener.close());
  }
  return {
    facts,
    refresh: () => supervisor.refresh(),
    note: shared.note,
    async configure(next) {
      configuration = next;
      shared.configure(next);
      await supervisor.configure((number) => workerConfiguration(next, count, number));
    },
  };
}

/**
 * Starts a gateway with several worker processes. This process answers no requests: it starts and
 * restarts the workers and does what must be done once for all of them.
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
