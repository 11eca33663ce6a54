import { Refusal } from "../refusal.ts";
import type { Backend } from "./backend.ts";
import type { BufferedQuery, QueryAnswer } from "./buffered-answer.ts";
import { hasBroken } from "./failure.ts";
import type { Place, Slot } from "./fair-limiter.ts";
import type { ForwardedQuery, Settle } from "./forward-attempt.ts";
import type { Connection } from "./http1/connection.ts";
import type { LoadBalancer } from "./load-balancer.ts";
import type { QueryLink } from "./query-link.ts";

/** Sends queries to the upstream. */
export interface QueryClient {
  /** Sends a query up and streams its answer to the client. */
  forward(query: ForwardedQuery): void;
  /**
   * Sends a query for the gateway's own use.
   *
   * @throws Refusal `upstream_unreachable`, `upstream_broken`, `upstream_timeout` or
   *   `upstream_overloaded`
   */
  ask(query: BufferedQuery): Promise<QueryAnswer>;
}

/** What becomes of a query whose caller gave it up. */
export function givenUp(): Refusal {
  return new Refusal("upstream_broken", { detail: "given up" });
}

/** How far an attempt that has failed had come. */
interface Sent {
  /** True if its connection never stood, so that no byte of it has gone up. */
  readonly isUnsent: boolean;
  /** True if bytes of an answer have come. */
  readonly hasReceived: boolean;
}

const none: ReadonlySet<Backend> = new Set();

function overloaded(): Refusal {
  return new Refusal("upstream_overloaded", { retryAfter: 1 });
}

/**
 * One query on its way to one of the backends, by one set of rules for retries and failover:
 *
 * - It waits for a free connection of the least busy live backend; if that is ejected meanwhile, of
 *   the next one.
 * - As long as no byte of it has gone up, it goes to one backend after the other.
 * - A read whose connection broke before a byte of an answer is sent once more, and so is anything
 *   else of which no byte has gone up: to another live backend, or to the same one where there is
 *   none, since it may have been no more than the end of an idle connection.
 */
abstract class Delivery<Query extends ForwardedQuery | BufferedQuery> {
  protected readonly query: Query;
  readonly #balancer: LoadBalancer<Backend>;
  #tried: Set<Backend> | undefined;
  #hasWaited = false;
  /** True once it was sent again. */
  #isRepeat = false;
  /** Why the last attempt has failed. */
  #failure: Refusal | undefined;

  constructor(balancer: LoadBalancer<Backend>, query: Query) {
    this.#balancer = balancer;
    this.query = query;
  }

  /** True once nobody waits for the answer any more. */
  protected abstract get isCancelled(): boolean;
  /** Has the place left once nobody waits any more; undefined: it is left already. */
  protected abstract hold(place: Place | undefined): void;
  protected abstract attempt(link: QueryLink, connection: Connection, settle: Settle): void;
  /** Told why there is no answer. */
  protected abstract fail(error: unknown): void;
  protected abstract cancel(): void;

  start(): void {
    const backend = this.#nextBackend();
    if (backend === undefined) {
      this.fail(this.#failure ?? overloaded());
    } else this.#sendTo(backend);
  }

  #nextBackend(): Backend | undefined {
    const tried = this.#tried ?? none;
    return this.#balancer.leastBusy(tried) ?? this.#balancer.leastRecentlyFailed(tried);
  }

  #sendTo(backend: Backend): void {
    const { limiter } = backend.link;
    const { user } = this.query;
    const slot = limiter.tryTake(user);
    if (slot !== undefined) {
      this.#send(backend, slot);
      return;
    }
    const place = limiter.wait(user, (next, left) => this.#onTurn(backend, next, left));
    this.#hasWaited = true;
    if (place === undefined) this.fail(overloaded());
    else this.hold(place);
  }

  #onTurn(backend: Backend, slot: Slot | undefined, { isDismissed }: Place): void {
    this.hold(undefined);
    if (slot !== undefined) this.#send(backend, slot);
    else if (this.isCancelled) this.cancel();
    else if (isDismissed) {
      this.#noteTried(backend);
      this.start();
    } else this.fail(overloaded());
  }

  #send(backend: Backend, slot: Slot): void {
    const { link } = backend;
    if (this.isCancelled) {
      link.limiter.release(slot);
      this.cancel();
      return;
    }
    if (this.#hasWaited) {
      try {
        this.query.judgeAgain?.();
      } catch (error) {
        link.limiter.release(slot);
        this.fail(error);
        return;
      }
    }
    // On a new connection: the retry must not meet another stale one.
    const connection = this.#isRepeat ? link.open() : link.take();
    this.attempt(link, connection, (failure, hasReceived) => {
      if (failure !== undefined && !this.isCancelled) {
        const { isUnsent } = connection;
        if (isUnsent || hasBroken(failure)) backend.noteFailure();
        this.#failure = failure;
        this.#retry(backend, slot, failure, { isUnsent, hasReceived });
        return;
      }
      link.limiter.release(slot);
      if (failure !== undefined) this.cancel();
      else if (!this.isCancelled) backend.noteSuccess();
    });
  }

  #retry(backend: Backend, slot: Slot, failure: Refusal, { isUnsent, hasReceived }: Sent): void {
    const { isRead } = this.query;
    const tried = this.#noteTried(backend);
    const mayRepeat = (isRead || isUnsent) && !this.#isRepeat && !hasReceived && hasBroken(failure);
    const nextForRead = mayRepeat ? this.#balancer.leastBusy(tried) : undefined;
    const next = isUnsent ? this.#nextBackend() : nextForRead;
    if (mayRepeat && (next === undefined || !isUnsent)) this.#isRepeat = true;
    if (next === undefined && mayRepeat) {
      this.#send(backend, slot);
      return;
    }
    backend.link.limiter.release(slot);
    if (next === undefined) this.fail(failure);
    else this.#sendTo(next);
  }

  #noteTried(backend: Backend): ReadonlySet<Backend> {
    this.#tried ??= new Set();
    return this.#tried.add(backend);
  }
}

/** A query whose answer is streamed to the client. */
class Forwarding extends Delivery<ForwardedQuery> {
  protected get isCancelled(): boolean {
    return this.query.sink.response.destroyed;
  }

  /** The client going away; nothing else may wait for that meanwhile. */
  protected hold(place: Place | undefined): void {
    this.query.sink.whenClosed = place && (() => place.leave());
  }

  protected attempt(link: QueryLink, connection: Connection, settle: Settle): void {
    link.forward(connection, this.query, settle);
  }

  protected fail(error: unknown): void {
    this.query.fail(error);
  }

  /** The client is gone: there is nobody to answer. */
  protected cancel(): void {}
}

/** A query whose answer the gateway itself has a use for. */
class Asking extends Delivery<BufferedQuery> {
  readonly #result = Promise.withResolvers<QueryAnswer>();
  readonly answer = this.#result.promise;
  #leave: (() => void) | undefined;

  protected get isCancelled(): boolean {
    return this.query.signal.aborted;
  }

  protected hold(place: Place | undefined): void {
    const { signal } = this.query;
    if (this.#leave !== undefined) signal.removeEventListener("abort", this.#leave);
    this.#leave = place && (() => place.leave());
    if (this.#leave !== undefined) signal.addEventListener("abort", this.#leave, { once: true });
  }

  protected attempt(link: QueryLink, connection: Connection, settle: Settle): void {
    link.ask(connection, this.query, { take: this.#result.resolve, settle });
  }

  protected fail(error: unknown): void {
    this.#result.reject(error);
  }

  protected cancel(): void {
    this.#result.reject(givenUp());
  }
}

/** Sends queries to whichever of the backends is live and least busy. */
export function createQueryClient(balancer: LoadBalancer<Backend>): QueryClient {
  return {
    forward: (query) => new Forwarding(balancer, query).start(),
    ask(query) {
      const asking = new Asking(balancer, query);
      asking.start();
      return asking.answer;
    },
  };
}
