import type { KeyObject } from "node:crypto";
import { epochSeconds } from "../clock.ts";
import type { TokenMetrics } from "../observe/component-metrics.ts";
import type { JsonObject } from "./compact-jws.ts";
import { RecentTokens } from "./recent-tokens.ts";
import { type Pin, verifyPinned } from "./verify-pinned.ts";

/** Buckets of the tokens that are remembered: 32,768 at most. */
const BUCKETS = 4096;

interface Remembered<T> {
  readonly content: T;
  readonly kid: string;
  readonly key: KeyObject;
  readonly notBefore: number;
  readonly expiresAt: number;
}

/**
 * Verifies tokens, and remembers those that were good, whole, so that one that is shown again costs
 * no signature. What is remembered is no more than what the token says: whether it was revoked and
 * what has become of its user is for the caller to judge each time.
 *
 * A remembered token counts while its key is the one that verifies its `kid` and its time has not
 * passed; after that it is verified anew, and refused as any other. What was refused is not
 * remembered, so no flood of bad tokens drives out a good one.
 */
export class VerifiedTokens<T> {
  readonly #pin: Pin;
  readonly #read: (claims: JsonObject) => T;
  readonly #recent: RecentTokens<Remembered<T>>;
  readonly #metrics = { remembered: 0, verified: 0, refused: 0 };

  /**
   * @param read makes sense of the claims, or throws a Refusal
   * @param buckets of eight tokens each that are remembered
   */
  constructor(pin: Pin, read: (claims: JsonObject) => T, buckets = BUCKETS) {
    this.#pin = pin;
    this.#read = read;
    this.#recent = new RecentTokens(buckets);
  }

  /** What has become of the tokens that were shown. */
  get metrics(): TokenMetrics {
    return this.#metrics;
  }

  /** The number of tokens that are remembered. */
  get size(): number {
    return this.#recent.size;
  }

  /**
   * What the token says.
   *
   * @throws Refusal `token_expired` or `token_invalid`
   */
  verify(token: string): T {
    const known = this.#recent.get(token);
    if (known === undefined) return this.#verifyAnew(token);
    if (this.#isGood(known)) {
      this.#metrics.remembered++;
      return known.content;
    }
    this.#recent.delete(token);
    return this.#verifyAnew(token);
  }

  #verifyAnew(token: string): T {
    try {
      const { claims, kid, key, notBefore, expiresAt } = verifyPinned(this.#pin, token);
      const content = this.#read(claims);
      this.#recent.add(token, { content, kid, key, notBefore, expiresAt });
      this.#metrics.verified++;
      return content;
    } catch (error) {
      this.#metrics.refused++;
      throw error;
    }
  }

  #isGood({ kid, key, notBefore, expiresAt }: Remembered<T>): boolean {
    const now = epochSeconds();
    return notBefore <= now && now < expiresAt && this.#pin.verifier(kid) === key;
  }
}
