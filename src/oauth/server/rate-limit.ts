import { AsyncLocalStorage } from "node:async_hooks";
import type { CountRequests } from "../../access/rights.ts";
import { addressKey, type LoginOrigin } from "../../identity/throttle.ts";

interface AddressBounds {
  readonly perAddress: number;
  /** Limit for a reverse proxy that all clients share. */
  readonly perSharedAddress: number;
  readonly window: number;
}

/** Counts a request. Returns 0 if it is allowed, otherwise the seconds until a retry. */
type AddressLimit = (origin: LoginOrigin) => Promise<number>;

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

/** Fetches of client documents per minute, limited because each one loads a foreign server. */
const documentBounds = { perAddress: 30, perSharedAddress: 300, window: 60 } as const;

export class DocumentLimit {
  readonly #limit: AddressLimit;
  readonly #asking = new AsyncLocalStorage<LoginOrigin>();

  constructor(countRequests: CountRequests) {
    this.#limit = addressLimit(countRequests, "documents", documentBounds);
  }

  /** Runs a handler and attributes the fetches that it causes to this origin. */
  during<Answer>(origin: LoginOrigin, answer: () => Answer): Answer {
    return this.#asking.run(origin, answer);
  }

  /** Counts a fetch. False if it exceeds the limit, or happens outside of a request. */
  async mayFetch(): Promise<boolean> {
    const origin = this.#asking.getStore();
    return origin !== undefined && (await this.#limit(origin)) === 0;
  }
}
