/** What the main process does for one worker: the other end of `remote.ts`. */
import type { SharedHere } from "../gateway/shared.ts";
import type { Derive } from "../identity/hash.ts";
import type { Attempt } from "../identity/throttle.ts";
import type { Handlers } from "../ipc/channel.ts";
import type { AddressLimit } from "../oauth/server/address-limit.ts";
import type { WorkerCalls } from "./calls.ts";
import { Held } from "./handles.ts";

/** What a worker is given that concerns more than itself. */
export type CommonCalls = Pick<
  Handlers<WorkerCalls>,
  "engine" | "claimPort" | "countAddress" | "tellOthers"
>;

/** A turn of the hashing process. */
interface Turn {
  readonly derive: Derive;
  readonly leave: () => void;
}

/** What a worker is answered with, and what ends what it leaves behind. */
export interface Desk {
  readonly handlers: Handlers<WorkerCalls>;
  /** The worker is gone. */
  close(): void;
}

/** Counts the requests of an address, over all workers, under the names of the limits. */
export function countAddresses({ openLimit }: SharedHere): CommonCalls["countAddress"] {
  const limits = new Map<string, AddressLimit>();
  return ({ limit: name, bounds, address, isShared }) => {
    const limit = limits.get(name) ?? openLimit(name, bounds);
    limits.set(name, limit);
    return limit({ address, isShared });
  };
}

type LoginCalls = Pick<Handlers<WorkerCalls>, "beginLogin" | "settleLogin">;

function loginCalls({ throttle }: SharedHere, attempts: Held<Attempt>): LoginCalls {
  return {
    async beginLogin({ username, address, isShared }, signal) {
      return attempts.put(await throttle.begin(username, { address, isShared, signal }));
    },
    async settleLogin({ attempt, outcome }) {
      await attempts.take(attempt)?.settle(outcome);
      return undefined;
    },
  };
}

type HashingCalls = Pick<Handlers<WorkerCalls>, "enterHashing" | "derive" | "leaveHashing">;

function hashingCalls({ hashing }: SharedHere, turns: Held<Turn>): HashingCalls {
  return {
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
      const held = turns.get(turn);
      if (held === undefined) throw new Error("a hash without its turn");
      return held.derive(order);
    },
    leaveHashing(turn) {
      turns.take(turn)?.leave();
      return undefined;
    },
  };
}

type McpCalls = Pick<
  Handlers<WorkerCalls>,
  "openSession" | "useSession" | "endSession" | "openStream" | "closeStream"
>;

function mcpCalls({ sessions, streams }: SharedHere, open: Held<string>): McpCalls {
  return {
    openSession: ({ id, username }) => sessions.open(id, username),
    useSession: ({ id, username }) => sessions.use(id, username),
    endSession(id) {
      sessions.end(id);
      return undefined;
    },
    openStream: (username) => (streams.take(username) ? open.put(username) : undefined),
    closeStream(stream) {
      const username = open.take(stream);
      if (username !== undefined) streams.release(username);
      return undefined;
    },
  };
}

/** Opens what one worker is answered with. */
export function openDesk(shared: SharedHere, common: CommonCalls): Desk {
  // Nobody will ever tell how they came out, and to end a worker must buy no guesses.
  const attempts = new Held<Attempt>((attempt) => void attempt.settle("failed"));
  const turns = new Held<Turn>(({ leave }) => leave());
  const streams = new Held<string>((username) => shared.streams.release(username));
  return {
    handlers: {
      ...common,
      ...loginCalls(shared, attempts),
      ...hashingCalls(shared, turns),
      ...mcpCalls(shared, streams),
    },
    close() {
      attempts.end();
      turns.end();
      streams.end();
    },
  };
}
