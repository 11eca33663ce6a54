import { AsyncLocalStorage } from "node:async_hooks";
import type { LoginOrigin } from "../../identity/throttle.ts";
import type { AddressLimit, OpenAddressLimit } from "./address-limit.ts";

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
