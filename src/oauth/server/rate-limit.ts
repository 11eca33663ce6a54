import { AsyncLocalStorage } from "node:async_hooks";
import { RateLimiterMemory, RateLimiterRes } from "rate-limiter-flexible";
import { addressKey, type LoginOrigin } from "../../identity/throttle.ts";

/** How often something may be asked for. */
export interface AddressBounds {
  readonly perAddress: number;
  /** From a reverse proxy with everyone behind it. */
  readonly perSharedAddress: number;
  /** Seconds. */
  readonly window: number;
}

/** Counts a request from there: the seconds after which it may come again, 0 if it may go on. */
export type AddressLimit = (origin: LoginOrigin) => Promise<number>;

/** Makes a limit, which every process of a gateway counts under the same name. */
export type OpenAddressLimit = (name: string, bounds: AddressBounds) => AddressLimit;

/** Makes a limit that counts in memory. */
export function createAddressLimit(bounds: AddressBounds): AddressLimit {
  const { perAddress, perSharedAddress, window } = bounds;
  const own = new RateLimiterMemory({ points: perAddress, duration: window });
  const shared = new RateLimiterMemory({ points: perSharedAddress, duration: window });
  return async ({ address, isShared }) => {
    try {
      await (isShared ? shared : own).consume(addressKey(address));
      return 0;
    } catch (error) {
      if (error instanceof RateLimiterRes) return Math.max(1, Math.ceil(error.msBeforeNext / 1000));
      throw error;
    }
  };
}

/** Documents of clients that are fetched a minute: to fetch is work for others too. */
const documentBounds = { perAddress: 30, perSharedAddress: 300, window: 60 } as const;

/** Bounds how many documents of clients are fetched for requests from one address. */
export class DocumentLimit {
  readonly #limit: AddressLimit;
  readonly #asking = new AsyncLocalStorage<LoginOrigin>();

  constructor(openLimit: OpenAddressLimit) {
    this.#limit = openLimit("documents", documentBounds);
  }

  /** Answers a request from there: documents that are fetched meanwhile are fetched for it. */
  during<Answer>(origin: LoginOrigin, answer: () => Answer): Answer {
    return this.#asking.run(origin, answer);
  }

  /** Counts a document; false if it may not be fetched, as for nobody's request. */
  async mayFetch(): Promise<boolean> {
    const origin = this.#asking.getStore();
    return origin !== undefined && (await this.#limit(origin)) === 0;
  }
}
