import { Refusal } from "../refusal.ts";
import type { Backend } from "./backend.ts";
import type { QueryAnswer } from "./buffered-answer.ts";
import { type Cancellation, whenAborted, whenClosed, whenEither } from "./cancellation.ts";
import { asRefusal, isBrokenConnection } from "./failure.ts";
import type { Outcome } from "./forward-attempt.ts";
import type { Connection } from "./http1/connection.ts";
import { LoadBalancer } from "./load-balancer.ts";
import { givenUp, type QueryClient } from "./query-client.ts";
import type { QueryLink } from "./query-link.ts";

/** A query on its way to one of several targets. */
interface Errand {
  readonly user: string;
  /** When the sink goes away. */
  readonly departure: Cancellation;
  readonly isGone: () => boolean;
  /** Sends it up. @param mayRepeat whether the outcome may be `again` */
  readonly attempt: (
    link: QueryLink,
    connection: Connection,
    mayRepeat: boolean,
  ) => Promise<Outcome>;
}

/** What came of an attempt, `unsent` if its connection never stood: then no byte has gone up. */
interface Attempted {
  readonly outcome: Outcome;
  readonly isUnsent: boolean;
}

const passedOver = "passed over";

function hasBroken({ cause }: Refusal): boolean {
  return cause instanceof Error && isBrokenConnection(cause);
}

async function attemptOn(
  target: Backend,
  connection: Connection,
  errand: Errand,
  mayRepeat: boolean,
): Promise<Attempted> {
  const outcome = await errand.attempt(target.link, connection, mayRepeat);
  const { isUnsent } = connection;
  if (errand.isGone()) return { outcome, isUnsent };
  if (outcome === "over") {
    target.noteSuccess();
  } else if (outcome === "again" || isUnsent || hasBroken(outcome)) {
    target.noteFailure();
  }
  return { outcome, isUnsent };
}

/**
 * Makes an attempt when the target has a slot for it.
 *
 * @returns `passed over` if the sink left or the target was ejected before that
 */
async function takeTurn(
  target: Backend,
  errand: Errand,
  isRepeat: boolean,
  mayRepeat: boolean,
): Promise<Attempted | typeof passedOver> {
  const { link } = target;
  const { limiter } = link;
  const ended = () => whenEither(errand.departure, target.whenEjected);
  const slot = limiter.tryTake(errand.user) ?? (await link.wait(errand.user, ended()));
  if (slot === undefined) return passedOver;
  try {
    if (errand.isGone()) return passedOver;
    // On a new connection: the retry must not meet another stale one.
    const connection = isRepeat ? link.open() : link.take();
    return await attemptOn(target, connection, errand, mayRepeat);
  } finally {
    limiter.release(slot);
  }
}

/** Sends queries to whichever of several targets is live and least busy. */
export function createBalancedClient(targets: readonly Backend[]): QueryClient {
  const choice = new LoadBalancer(targets);

  /**
   * Runs an errand: on one target after the other while no byte of it has gone up, and once more,
   * if it may be repeated, when its connection broke before a byte of an answer.
   *
   * @returns false if the sink left first
   */
  async function run(errand: Errand, isRead: boolean): Promise<boolean> {
    const tried = new Set<Backend>();
    const choose = () => choice.leastBusy(tried) ?? choice.leastRecentlyFailed(tried);
    let refusal = new Refusal("upstream_overloaded", { retryAfter: 1 });
    let mayRepeat = isRead;
    let isRepeat = false;
    for (let target = choose(); target !== undefined; ) {
      if (errand.isGone()) return false;
      const attempted = await takeTurn(target, errand, isRepeat, mayRepeat);
      tried.add(target);
      if (attempted === passedOver) {
        target = choose();
        continue;
      }
      const { outcome, isUnsent } = attempted;
      if (outcome === "over") return true;
      if (isUnsent) {
        refusal = outcome === "again" ? new Refusal("upstream_broken") : outcome;
        target = choose();
      } else if (outcome === "again") {
        mayRepeat = false;
        isRepeat = true;
        // Where no other one is live, it may have been an idle connection's end and nothing more.
        target = choice.leastBusy(tried) ?? target;
      } else {
        throw outcome;
      }
    }
    throw refusal;
  }

  return {
    forward(query) {
      const { user, sink } = query;
      const errand: Errand = {
        user,
        departure: whenClosed(sink),
        isGone: () => sink.response.destroyed,
        attempt: (link, connection, isRead) =>
          new Promise((settle) => link.send(connection, { ...query, isRead }, settle)),
      };
      run(errand, query.isRead).catch(query.fail);
    },
    async ask(query) {
      const { user, signal } = query;
      let answer: QueryAnswer | undefined;
      const errand: Errand = {
        user,
        departure: whenAborted(signal),
        isGone: () => signal.aborted,
        async attempt(link, connection) {
          try {
            answer = await link.ask(connection, query);
            return "over";
          } catch (error) {
            return asRefusal(error instanceof Error ? error : new Error("unknown"));
          }
        },
      };
      await run(errand, false);
      if (answer === undefined) throw givenUp();
      return answer;
    },
  };
}
