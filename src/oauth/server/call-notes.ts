import { epochSeconds } from "../../clock.ts";
import type { Log } from "../../observe/log.ts";
import { lifetimes } from "./lifetimes.ts";
import type { StateStore } from "./store.ts";

/** Calls that are known to be written down; past that many they are looked up again. */
const MOST = 10_000;

/** Writes down which tools apps have called, each once, for their users to see. */
export class CallNotes {
  readonly #store: Pick<StateStore, "noteCall">;
  readonly #log: Log;
  readonly #noted = new Set<string>();

  constructor(store: Pick<StateStore, "noteCall">, log: Log) {
    this.#store = store;
    this.#log = log;
  }

  /** What cannot be written down stops no call. */
  note(grantId: string, tool: string): void {
    const call = `${grantId} ${tool}`;
    if (this.#noted.has(call)) return;
    if (this.#noted.size >= MOST) this.#noted.clear();
    this.#noted.add(call);
    try {
      this.#store.noteCall(grantId, tool, epochSeconds() + lifetimes.grant);
    } catch (error) {
      this.#log.warn({ err: error }, "the call of a tool was not written down");
    }
  }
}
