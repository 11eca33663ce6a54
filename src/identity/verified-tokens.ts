import type { KeyObject } from "node:crypto";
import { epochSeconds } from "../clock.ts";
import type { TokenFigures } from "../observe/source-figures.ts";
import type { JsonObject } from "./compact-jws.ts";
import { type Pin, type PinnedClaims, verifyPinned } from "./verify-pinned.ts";

/** Tokens in each of the two generations that are remembered. */
const GENERATION = 4096;

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
  readonly #generation: number;
  #recent = new Map<string, Remembered<T>>();
  /** What was recent before; what is not asked for while the next generation fills is forgotten. */
  #earlier = new Map<string, Remembered<T>>();
  readonly #figures = { remembered: 0, verified: 0, refused: 0 };

  /**
   * @param read makes sense of the claims, or throws a Refusal
   * @param generation tokens in each of the two generations
   */
  constructor(pin: Pin, read: (claims: JsonObject) => T, generation = GENERATION) {
    this.#pin = pin;
    this.#read = read;
    this.#generation = generation;
  }

  /** What has become of the tokens that were shown. */
  get figures(): TokenFigures {
    return this.#figures;
  }

  /** The number of tokens that are remembered. */
  get size(): number {
    return this.#recent.size + this.#earlier.size;
  }

  /**
   * What the token says.
   *
   * @throws Refusal `token_expired` or `token_invalid`
   */
  verify(token: string): T {
    const known = this.#recent.get(token) ?? this.#recall(token);
    if (known !== undefined && this.#isGood(known)) {
      this.#figures.remembered++;
      return known.content;
    }
    this.#recent.delete(token);
    return this.#verifyAnew(token);
  }

  #verifyAnew(token: string): T {
    try {
      const verified = verifyPinned(this.#pin, token);
      const content = this.#remember(token, verified, this.#read(verified.claims));
      this.#figures.verified++;
      return content;
    } catch (error) {
      this.#figures.refused++;
      throw error;
    }
  }

  #isGood({ kid, key, notBefore, expiresAt }: Remembered<T>): boolean {
    const now = epochSeconds();
    return notBefore <= now && now < expiresAt && this.#pin.verifier(kid) === key;
  }

  /** Takes a token from the earlier generation into the recent one. */
  #recall(token: string): Remembered<T> | undefined {
    const known = this.#earlier.get(token);
    if (known === undefined) return undefined;
    this.#earlier.delete(token);
    this.#put(token, known);
    return known;
  }

  #remember(token: string, { kid, key, notBefore, expiresAt }: PinnedClaims, content: T): T {
    this.#put(token, { content, kid, key, notBefore, expiresAt });
    return content;
  }

  #put(token: string, known: Remembered<T>): void {
    if (this.#recent.size >= this.#generation) {
      this.#earlier = this.#recent;
      this.#recent = new Map();
    }
    this.#recent.set(token, known);
  }
}
