import { Refusal } from "../refusal.ts";
import type { BufferedQuery, QueryAnswer } from "./buffered-answer.ts";
import { whenAborted, whenClosed } from "./cancellation.ts";
import type { Slot } from "./fair-limiter.ts";
import type { Outcome } from "./forward-attempt.ts";
import type { ForwardedQuery } from "./query-forward.ts";
import type { QueryLink } from "./query-link.ts";

/** Sends queries to the upstream and streams the answers back. */
export interface QueryClient {
  /** Sends a query up; its answer goes to the sink. */
  forward(query: ForwardedQuery): void;
  /**
   * Sends a query for the gateway's own use.
   *
   * @throws Refusal `upstream_unreachable`, `upstream_broken`, `upstream_timeout` or
   *   `upstream_overloaded`
   */
  ask(query: BufferedQuery): Promise<QueryAnswer>;
}

/** What becomes of a query whose sink gave it up. */
export function givenUp(): Refusal {
  return new Refusal("upstream_broken", { detail: "given up" });
}

/** Sends queries to an upstream of one target. */
export function createQueryClient(link: QueryLink): QueryClient {
  const { limiter } = link;

  function send(query: ForwardedQuery, slot: Slot): void {
    function settle(outcome: Outcome): void {
      if (outcome === "again") {
        // On a new connection: the retry must not meet another stale one.
        link.send(link.open(), { ...query, isRead: false }, settle);
        return;
      }
      limiter.release(slot);
      if (outcome !== "over") query.fail(outcome);
    }
    if (query.sink.response.destroyed) limiter.release(slot);
    else link.send(link.take(), query, settle);
  }

  async function sendInTurn(query: ForwardedQuery): Promise<void> {
    const slot = await link.wait(query.user, whenClosed(query.sink));
    if (slot !== undefined) send(query, slot);
  }

  return {
    forward(query) {
      const slot = limiter.tryTake(query.user);
      if (slot !== undefined) send(query, slot);
      else sendInTurn(query).catch(query.fail);
    },
    async ask(query) {
      const { user, signal } = query;
      const slot = limiter.tryTake(user) ?? (await link.wait(user, whenAborted(signal)));
      if (slot === undefined) throw givenUp();
      try {
        return await link.ask(link.take(), query);
      } finally {
        limiter.release(slot);
      }
    },
  };
}
