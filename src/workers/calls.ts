/** What a gateway's processes ask of each other. */

import type { HashCosts } from "../access/password-hash.ts";
import type { CountedWindow, RequestCount } from "../access/rate-limits.ts";
import type { LoadedConfiguration } from "../config/load.ts";
import type { Configuration } from "../config/schema.ts";
import type { Condition, SharedFile } from "../gateway/shared.ts";
import type { GatewayFacts } from "../gateway/start.ts";
import type { HashOrder } from "../identity/hash.ts";
import type { HashClient } from "../identity/hash-queue.ts";
import type { LoginOrigin, Outcome } from "../identity/throttle.ts";
import { type Call, type Channel, type ErrorCodec, messageCodec } from "../ipc/channel.ts";
import type { MetricValues } from "../observe/metrics.ts";
import { Refusal, type RefusalCode } from "../refusal.ts";
import type { UpstreamTarget } from "../upstream/target.ts";

type Nothing = undefined;

/** What a worker needs to begin. */
export interface WorkerSettings {
  /** From 1. */
  readonly number: number;
  /** True for the one that makes what a first start makes. */
  readonly isFirst: boolean;
  /** With this worker's share of what is bounded for the whole gateway. */
  readonly loaded: LoadedConfiguration;
  readonly chosenPassword: string | undefined;
  readonly hasTerminal: boolean;
}

/** What workers ask of the main process. Handles, numbers, stand for what it holds for the worker. */
export type WorkerCalls = {
  readonly engine: Call<Nothing, UpstreamTarget>;
  readonly claimPort: Call<Nothing, number>;
  readonly beginLogin: Call<Omit<LoginOrigin, "signal"> & { readonly username: string }, number>;
  readonly settleLogin: Call<{ readonly attempt: number; readonly outcome: Outcome }, void>;
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
  readonly tellOthers: Call<SharedFile, void>;
};

/** What the main process asks of a worker. */
export type MainCalls = {
  readonly start: Call<WorkerSettings, GatewayFacts>;
  readonly reload: Call<SharedFile, void>;
  readonly refresh: Call<Nothing, void>;
  /** Puts a configuration in force, with this worker's share of what is bounded for all. */
  readonly configure: Call<Configuration, void>;
  readonly metrics: Call<Nothing, MetricValues>;
  readonly stopListening: Call<Nothing, void>;
  /** Answered by the worker's end. */
  readonly drain: Call<Nothing, void>;
};

/** What becomes of an error on its way: a Refusal stays one, of any other its message is kept. */
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
    return new Refusal(code, {
      message,
      ...(detail === undefined ? {} : { detail }),
      ...(retryAfter === undefined ? {} : { retryAfter }),
    });
  },
};

/** A worker's end of the channel. */
export type MainChannel = Channel<MainCalls, WorkerCalls, RefusalFailure>;
