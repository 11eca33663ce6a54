/** What the main process does for one worker: the other end of `serve.ts`. */
import type { SharedHere } from "../gateway/shared.ts";
import type { Derive } from "../identity/hash.ts";
import type { Attempt } from "../identity/throttle.ts";
import type { Handlers } from "../ipc/channel.ts";
import type { WorkerCalls } from "./calls.ts";

/** What a worker is given that concerns more than itself. */
export type CommonCalls = Pick<
  Handlers<WorkerCalls>,
  "engine" | "claimPort" | "countRequests" | "condition" | "tellOthers"
>;

/** What is held for a worker under handles, until it is given back or the worker is gone. */
class Handles<Thing> {
  readonly #things = new Map<number, Thing>();
  readonly #drop: (thing: Thing) => void;
  #lastHandle = 0;
  #isOver = false;

  /** @param drop gives back what the worker no longer can */
  constructor(drop: (thing: Thing) => void) {
    this.#drop = drop;
  }

  /** Holds a thing; what comes when the worker is gone is dropped at once. */
  put(thing: Thing): number {
    const handle = ++this.#lastHandle;
    if (this.#isOver) this.#drop(thing);
    else this.#things.set(handle, thing);
    return handle;
  }

  get(handle: number): Thing | undefined {
    return this.#things.get(handle);
  }

  /** Holds it no more. */
  take(handle: number): Thing | undefined {
    const thing = this.#things.get(handle);
    this.#things.delete(handle);
    return thing;
  }

  /** Drops everything: the worker is gone. */
  end(): void {
    this.#isOver = true;
    for (const thing of this.#things.values()) this.#drop(thing);
    this.#things.clear();
  }
}

/** What a worker is answered with, and what ends what it leaves behind. */
export interface WorkerHandlers {
  readonly handlers: Handlers<WorkerCalls>;
  /** The worker is gone. */
  close(): void;
}

/** Opens what one worker is answered with. */
export function openWorkerHandlers(shared: SharedHere, common: CommonCalls): WorkerHandlers {
  const { throttle, hashing, sessions, streams } = shared;
  // Nobody will ever tell how they came out, and to end a worker must buy no guesses.
  const attempts = new Handles<Attempt>((attempt) => void attempt.settle("failed"));
  /** Turns of the hashing process. */
  const turns = new Handles<{ derive: Derive; leave: () => void }>(({ leave }) => leave());
  const open = new Handles<string>((username) => streams.release(username));
  return {
    handlers: {
      ...common,
      async beginLogin({ username, address, isShared }, signal) {
        return attempts.put(await throttle.begin(username, { address, isShared, signal }));
      },
      async settleLogin({ attempt, outcome }) {
        await attempts.take(attempt)?.settle(outcome);
      },
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
      leaveHashing: (turn) => turns.take(turn)?.leave(),
      openSession: ({ id, username }) => sessions.open(id, username),
      useSession: ({ id, username }) => sessions.use(id, username),
      endSession: (id) => sessions.end(id),
      openStream: (username) => (streams.take(username) ? open.put(username) : undefined),
      closeStream(stream) {
        const username = open.take(stream);
        if (username !== undefined) streams.release(username);
      },
    },
    close() {
      attempts.end();
      turns.end();
      open.end();
    },
  };
}
