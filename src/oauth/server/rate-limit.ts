import { AsyncLocalStorage } from "node:async_hooks";
import type { CountRequests } from "../../access/rights.ts";
import { addressKey, type LoginOrigin } from "../../identity/throttle.ts";

/** How often something may be asked for. */
interface AddressBounds {
  readonly perAddress: number;
  /** From a reverse proxy with everyone behind it. */
  readonly perSharedAddress: number;
  /** Seconds. */
  readonly window: number;
}

/** Counts a request from there: the seconds after which it may come again, 0 if it may go on. */
type AddressLimit = (origin: LoginOrigin) => Promise<number>;

/** Bounds what one address may ask for, under a name. */
export function addressLimit(
  countRequests: CountRequests,
  name: string,
  { perAddress, perSharedAddress, window }: AddressBounds,
): AddressLimit {
  return async ({ address, isShared }) => {
    const limit = { count: isShared ? perSharedAddress : perAddress, windowMs: window * 1000 };
    const key = `${name} ${isShared ? "shared " : ""}${addressKey(address)}`;
    return (await countRequests({ key, limit, points: 1 })).retryAfter;
  };
}

/** Documents of clients that are fetched a minute: to fetch is work for others too. */
const documentBounds = { perAddress: 30, perSharedAddress: 300, window: 60 } as const;

/** Bounds how many documents of clients are fetched for requests from one address. */
export class DocumentLimit {
  readonly #limit: AddressLimit;
  readonly #asking = new AsyncLocalStorage<LoginOrigin>();

  constructor(countRequests: CountRequests) {
    this.#limit = addressLimit(countRequests, "documents", documentBounds);
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
