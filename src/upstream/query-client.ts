import { Refusal } from "../refusal.ts";
import { whenAborted, whenClosed } from "./departure.ts";
import type { QueryAnswer, QueryAsk } from "./query-ask.ts";
import type { QueryForward } from "./query-forward.ts";
import type { QueryLink } from "./query-link.ts";

/** Sends queries to the upstream and streams the answers back. */
export interface QueryClient {
  /**
   * Resolves when the answer has gone out or broken off.
   *
   * @throws Refusal `upstream_unreachable`, `upstream_broken`, `upstream_timeout` or
   *   `upstream_overloaded`, as long as nothing of an answer has gone out
   */
  forward(query: QueryForward): Promise<void>;
  /** Sends a query for the gateway's own use. @throws Refusal like `forward` */
  ask(query: QueryAsk): Promise<QueryAnswer>;
}

/** The body of a query in one piece. */
export function wholeBody(body: Buffer | Buffer[]): Buffer {
  return Array.isArray(body) ? Buffer.concat(body) : body;
}

/** What becomes of a query whose asker gave it up. */
export function givenUp(): Refusal {
  return new Refusal("upstream_broken", { detail: "given up" });
}

async function forwardOn(link: QueryLink, query: QueryForward): Promise<void> {
  if (query.response.destroyed) return;
  const body = wholeBody(query.body);
  let outcome = await link.send(link.take(), query, body);
  // On a new connection: the retry must not meet another stale one.
  if (outcome === "again")
    outcome = await link.send(link.open(), { ...query, isRead: false }, body);
  if (outcome instanceof Refusal) throw outcome;
}

/** Sends queries to an upstream of one target. */
export function createQueryClient(link: QueryLink): QueryClient {
  const { slots } = link;
  return {
    async forward(query) {
      const { user, response } = query;
      const slot = slots.tryTake(user) ?? (await link.wait(user, whenClosed(response)));
      if (slot === undefined) return;
      try {
        await forwardOn(link, query);
      } finally {
        slots.release(slot);
      }
    },
    async ask(query) {
      const { user, signal } = query;
      const slot = slots.tryTake(user) ?? (await link.wait(user, whenAborted(signal)));
      if (slot === undefined) throw givenUp();
      try {
        return await link.ask(link.take(), query);
      } finally {
        slots.release(slot);
      }
    },
  };
}
