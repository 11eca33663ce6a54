import type { LocalShared, SharedFile } from "../../app/shared.ts";
import type { GatewayFacts } from "../../app/start.ts";
import type { HashCosts } from "../../core/access/password-hash.ts";
import type { CountedWindow, RequestCount } from "../../core/access/rights.ts";
import {
  type Call,
  type Channel,
  type ErrorCodec,
  type Handlers,
  messageCodec,
} from "../../core/base/ipc.ts";
import { Refusal, type RefusalCode } from "../../core/base/refusal.ts";
import type { LoadedConfiguration } from "../../core/config/load.ts";
import type { Configuration } from "../../core/config/schema.ts";
import type { Condition } from "../../core/http/gateway.ts";
import type { Derive, HashOrder } from "../../core/identity/hash.ts";
import type { HashClient } from "../../core/identity/hashing.ts";
import type { Attempt, LoginOrigin, Outcome } from "../../core/identity/throttle.ts";
import type { MetricValues } from "../../core/observe/metrics.ts";

type Nothing = undefined;

export interface WorkerSettings {
  /** From 1. */
  readonly number: number;
  /** True for the worker that creates what a first start creates. */
  readonly isFirst: boolean;
  /** With this worker's share of the limits for the whole gateway. */
  readonly loaded: LoadedConfiguration;
  readonly chosenPassword: string | undefined;
  readonly hasTerminal: boolean;
}

export type WorkerCalls = {
  readonly claimPort: Call<Nothing, number>;
  readonly beginLogin: Call<Omit<LoginOrigin, "signal"> & { readonly username: string }, number>;
  readonly completeLogin: Call<{ readonly attempt: number; readonly outcome: Outcome }, void>;
  readonly unlockLogin: Call<string, void>;
  readonly enterHashing: Call<
    { readonly costs: readonly HashCosts[]; readonly client: Omit<HashClient, "signal"> },
    number
  >;
  readonly derive: Call<{ readonly turn: number; readonly order: HashOrder }, Uint8Array>;
  readonly leaveHashing: Call<number, void>;
  readonly countRequests: Call<CountedWindow, RequestCount>;
  readonly condition: Call<Nothing, Condition>;
  readonly openSession: Call<{ readonly id: string; readonly username: string }, boolean>;
  readonly useSession: Call<{ readonly id: string; readonly username: string }, boolean>;
  readonly endSession: Call<string, void>;
  readonly openStream: Call<string, number | undefined>;
  readonly closeStream: Call<number, void>;
  readonly broadcastReload: Call<SharedFile, void>;
};

export type MainCalls = {
  readonly start: Call<WorkerSettings, GatewayFacts>;
  readonly reload: Call<SharedFile, void>;
  readonly refresh: Call<Nothing, void>;
  /** Applies a configuration with this worker's share of the gateway-wide limits. */
  readonly configure: Call<Configuration, void>;
  readonly metrics: Call<Nothing, MetricValues>;
  readonly stopListening: Call<Nothing, void>;
  /** Answered by the worker's exit. */
  readonly drain: Call<Nothing, void>;
};

/** An error in transit: a Refusal stays a Refusal, other errors keep only their message. */
export interface RefusalFailure {
  readonly message: string;
  readonly code?: RefusalCode;
  readonly detail?: string | undefined;
  readonly retryAfter?: number | undefined;
}

export const refusalCodec: ErrorCodec<RefusalFailure> = {
  encode(error) {
    if (!(error instanceof Refusal)) return { message: messageCodec.encode(error) };
    const { code, message, detail, retryAfter } = error;
    return { code, message, detail, retryAfter };
  },
  decode({ code, message, detail, retryAfter }) {
    if (code === undefined) return messageCodec.decode(message);
    return new Refusal(code, { message, detail, retryAfter });
  },
};

export type MainChannel = Channel<MainCalls, WorkerCalls, RefusalFailure>;

export type CommonCalls = Pick<
  Handlers<WorkerCalls>,
  "claimPort" | "countRequests" | "condition" | "broadcastReload"
>;

/** Objects of a worker by handle, until they are released or the worker is gone. */
class HandleTable<Thing> {
  readonly #things = new Map<number, Thing>();
  readonly #drop: (thing: Thing) => void;
  #lastHandle = 0;
  #isOver = false;

  /** @param drop releases an object on behalf of a worker that is gone */
  constructor(drop: (thing: Thing) => void) {
    this.#drop = drop;
  }

  /** Holds an object; if the worker is already gone, drops it at once. */
  put(thing: Thing): number {
    const handle = ++this.#lastHandle;
    if (this.#isOver) this.#drop(thing);
    else this.#things.set(handle, thing);
    return handle;
  }

  get(handle: number): Thing | undefined {
    return this.#things.get(handle);
  }

  take(handle: number): Thing | undefined {
    const thing = this.#things.get(handle);
    this.#things.delete(handle);
    return thing;
  }

  end(): void {
    this.#isOver = true;
    for (const thing of this.#things.values()) this.#drop(thing);
    this.#things.clear();
  }
}

export type WorkerHandlers = ReturnType<typeof openWorkerHandlers>;

/** The main process's side of the calls of one worker; the other side is `serve.ts`. */
export function openWorkerHandlers(shared: LocalShared, common: CommonCalls) {
  const { throttle, hashing, sessions, streams } = shared;
  // Their outcome will never be known. They count as failed, so that killing a worker does not buy
  // extra guesses.
  const attempts = new HandleTable<Attempt>((attempt) => void attempt.complete("failed"));
  /** Turns in the queue of the hashing process. */
  const turns = new HandleTable<{ derive: Derive; leave: () => void }>(({ leave }) => leave());
  const open = new HandleTable<() => void>((release) => release());
  const handlers: Handlers<WorkerCalls> = {
    ...common,
    async beginLogin({ username, address, isShared }, signal) {
      return attempts.put(await throttle.begin(username, { address, isShared, signal }));
    },
    async completeLogin({ attempt, outcome }) {
      await attempts.take(attempt)?.complete(outcome);
    },
    unlockLogin: (username) => throttle.unlock(username),
    enterHashing({ costs, client }, signal) {
      const entered = Promise.withResolvers<number>();
      const left = Promise.withResolvers<void>();
      const work = (derive: Derive) => {
        entered.resolve(turns.put({ derive, leave: left.resolve }));
        return left.promise;
      };
      hashing.run(costs, { ...client, signal }, work).catch(entered.reject);
      return entered.promise;
    },
    derive({ turn, order }) {
      const entry = turns.get(turn);
      if (entry === undefined) throw new Error("a hash without its turn");
      return entry.derive(order);
    },
    leaveHashing: (turn) => turns.take(turn)?.leave(),
    openSession: ({ id, username }) => sessions.open(id, username),
    useSession: ({ id, username }) => sessions.use(id, username),
    endSession: (id) => sessions.end(id),
    openStream(username) {
      const release = streams.take(username);
      return release && open.put(release);
    },
    closeStream: (stream) => open.take(stream)?.(),
  };
  return {
    handlers,
    close() {
      attempts.end();
      turns.end();
      open.end();
    },
  };
}
