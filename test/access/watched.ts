/** The access file in force while a test changes it on disk. */

import type { Test } from "tap";
import { openAccessFile } from "../../src/core/access/access-file.ts";
import type { AccessRules, ReloadEvent } from "../../src/core/access/access-rules.ts";
import { PATIENCE_MS } from "../kit/eventually.ts";
import { grant, grantOn, user } from "./kit.ts";

export function holding(role: string): string {
  return user("alice") + grant("alice", "main", role);
}

class Watched {
  readonly live: AccessRules;
  readonly events: ReloadEvent[];
  readonly #heard: EventTarget;

  constructor(live: AccessRules, events: ReloadEvent[], heard: EventTarget) {
    this.live = live;
    this.events = events;
    this.#heard = heard;
  }

  get role(): string | undefined {
    return grantOn(this.live.snapshot, "alice", "main")?.role;
  }

  /** Resolves once `holds` is true after some event; rejects if it is not in time. */
  async until(holds: () => boolean): Promise<void> {
    if (holds()) return;
    const { promise, resolve, reject } = Promise.withResolvers<void>();
    const told = JSON.stringify(this.events.map(({ kind }) => kind));
    const timer = setTimeout(() => reject(new Error(`not in time: ${told}`)), PATIENCE_MS);
    const look = () => holds() && resolve();
    this.#heard.addEventListener("event", look);
    try {
      await promise;
    } finally {
      clearTimeout(timer);
      this.#heard.removeEventListener("event", look);
    }
  }

  async untilRole(role: string): Promise<void> {
    return this.until(() => this.role === role && !this.live.stale);
  }

  /** Waits until the file on disk has been refused, and returns the reason. */
  async untilRefused(): Promise<string | undefined> {
    await this.until(() => this.live.stale);
    const event = this.events.findLast(({ kind }) => kind === "failed");
    return event?.kind === "failed" ? event.problems[0]?.reason : undefined;
  }
}

/** Opens the file as the gateway does, until the test ends. */
export async function watched(t: Test, file: string, checkRead = true): Promise<Watched> {
  const events: ReloadEvent[] = [];
  const heard = new EventTarget();
  const onReload = (event: ReloadEvent) => {
    events.push(event);
    // A reported state is in force by the next turn.
    setImmediate(() => heard.dispatchEvent(new Event("event")));
  };
  const live = await openAccessFile(file, { checkRead });
  live.subscribe(onReload);
  t.teardown(() => live.close());
  return new Watched(live, events, heard);
}
