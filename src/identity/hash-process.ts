import { type Call, ChannelClosedError, messageCodec, type NoCalls } from "../ipc/channel.ts";
import { ChildProgram, howEnded, siblingModule } from "../ipc/child-program.ts";
import { Refusal } from "../refusal.ts";
import type { HashOrder } from "./hash.ts";

/** What the gateway asks of the process. */
export type HashCalls = { readonly derive: Call<HashOrder, Uint8Array> };

type HashProgram = ChildProgram<NoCalls, HashCalls, string>;

/** Questions in a row whether it is there that may go unanswered; more while it starts. */
const HEARTBEAT = { missable: 5, missableAtStart: 20 };
/** Processes that an order is given to before it fails. */
const ATTEMPTS = 2;

/**
 * Not detached: where the system shares the cores out by session first, a process in a session of
 * its own would get as much as the gateway, however low its priority.
 */
function startProgram(threads: number): HashProgram {
  const kept = Object.entries(process.env).filter(([name]) => !name.startsWith("GATEHOUSE_"));
  return new ChildProgram(siblingModule(import.meta.url, "hash-program"), {
    fork: {
      env: { ...Object.fromEntries(kept), UV_THREADPOOL_SIZE: String(threads) },
      execArgv: [],
      stdio: ["ignore", "ignore", "inherit", "ipc"],
    },
    handlers: {},
    errors: messageCodec,
    heartbeat: HEARTBEAT,
  });
}

function failure(detail: string): Refusal {
  return new Refusal("login_busy", { detail, retryAfter: 1 });
}

/**
 * Hashes in a process of its own, of lower priority: in the gateway's own process the hashes' threads
 * compete with the event loop for the cores, their memory's coming and going stalls it, and their
 * places in the pool are missed by files and signatures. The process is started by the first order.
 * When it dies or does not answer any more, another one is given what it had to do.
 */
export class HashProcess {
  readonly #threads: number;
  readonly #onLost: (reason: string) => void;
  #running: HashProgram | undefined;
  #isClosed = false;

  /**
   * @param threads hashes that it works on at one time
   * @param onLost told why a process that was not to end is replaced
   */
  constructor(threads: number, onLost: (reason: string) => void) {
    this.#threads = threads;
    this.#onLost = onLost;
  }

  /** @throws Refusal `login_busy` if the process cannot do it */
  async derive(order: HashOrder): Promise<Uint8Array> {
    for (let attempt = 1; ; attempt++) {
      // A login that outlasts its connection must not start the process again.
      if (this.#isClosed) throw failure("the gateway is closing");
      try {
        return await this.#usable().ask("derive", order);
      } catch (error) {
        if (!(error instanceof ChannelClosedError)) throw failure("a hash failed");
        if (attempt === ATTEMPTS) throw failure(`the hashing process: ${error.how}`);
      }
    }
  }

  /** Ends the process. */
  async close(): Promise<void> {
    this.#isClosed = true;
    await this.#running?.kill();
  }

  #usable(): HashProgram {
    if (this.#running?.isUsable) return this.#running;
    const program = startProgram(this.#threads);
    void program.ended.then((ending) => {
      if (!this.#isClosed) this.#onLost(howEnded(ending));
    });
    this.#running = program;
    return program;
  }
}
