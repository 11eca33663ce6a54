import type { AccessRules, ReloadEvent } from "../access/access-rules.ts";
import type { AccessProblem } from "../access/diagnostics.ts";
import type { AccessDiff } from "../access/diff.ts";
import { epochSeconds } from "../clock.ts";

/** What became of a new state of the access rules, and when, in epoch seconds. */
export type AccessEvent = { readonly at: number } & (
  | { readonly kind: "loaded"; readonly version: string; readonly diff: AccessDiff }
  | { readonly kind: "failed"; readonly problems: readonly AccessProblem[] }
);

/** Events that are remembered. */
const REMEMBERED = 50;

function eventOf(event: ReloadEvent): AccessEvent {
  const at = epochSeconds();
  if (event.kind === "failed") return { at, kind: "failed", problems: event.problems };
  return { at, kind: "loaded", version: event.snapshot.version, diff: event.diff };
}

/** Remembers what has become of the access rules since it was made, the newest first. */
export class AccessHistory {
  #events: readonly AccessEvent[] = [];
  readonly since = epochSeconds();

  constructor(access: Pick<AccessRules, "subscribe">) {
    access.subscribe((event) => {
      this.#events = [eventOf(event), ...this.#events].slice(0, REMEMBERED);
    });
  }

  get events(): readonly AccessEvent[] {
    return this.#events;
  }
}
