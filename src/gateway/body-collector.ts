import { Refusal } from "../refusal.ts";
import { type Exchange, payerOf } from "./exchange.ts";

/**
 * Counts the request bodies that are held in memory, so that together they stay within a bound,
 * and that nobody's bodies take more of it than they leave to all others.
 */
export class BodyBudget {
  /** Bytes, no fewer than the largest body may have. */
  limit: number;
  readonly #heldFor = new Map<string, number>();
  #held = 0;

  constructor(limit: number) {
    this.limit = limit;
  }

  /** @throws Refusal `busy` if the bytes would exceed the bound, or the share of who sends them */
  take(exchange: Exchange, bytes: number): void {
    if (exchange.body.heldBytes === 0) exchange.body.heldFor = payerOf(exchange);
    const own = this.#heldFor.get(exchange.body.heldFor) ?? 0;
    const left = this.limit - this.#held - bytes;
    // A single body may have all that is free: nothing but its size limits it.
    const isAlone = own === exchange.body.heldBytes;
    if (left < 0 || (!isAlone && own + bytes > left)) {
      throw new Refusal("busy", { detail: "max_buffered_bytes", retryAfter: 1 });
    }
    this.#held += bytes;
    this.#heldFor.set(exchange.body.heldFor, own + bytes);
    exchange.body.heldBytes += bytes;
  }

  /** Gives back what the exchange holds. */
  release(exchange: Exchange): void {
    const { heldBytes, heldFor } = exchange.body;
    if (heldBytes === 0) return;
    const rest = (this.#heldFor.get(heldFor) ?? 0) - heldBytes;
    if (rest > 0) this.#heldFor.set(heldFor, rest);
    else this.#heldFor.delete(heldFor);
    this.#held -= heldBytes;
    exchange.body.heldBytes = 0;
  }
}

const nothing = Buffer.alloc(0);
/** Bytes of the first buffer for a body that comes in pieces. */
const FIRST_BYTES = 4096;
/** Bytes that are held ready for each that has come, at most. */
const GROWTH = 8;
/** Bytes of a piece whose memory is given back at once. */
const LARGE_PIECE = 16 * 1024;

/**
 * Gives memory back that nobody looks at any more. Left to the collector it would count until that
 * goes through the whole heap, and have it do so after every few large bodies.
 */
function giveBack(piece: Buffer): void {
  const { buffer: memory, length } = piece;
  if (length < LARGE_PIECE || memory.byteLength !== length) return;
  if (memory instanceof ArrayBuffer) memory.transfer(0);
}

/**
 * Gathers a body in one buffer that grows as needed, so that a body in a million pieces costs no
 * more memory than the budget is told.
 */
export class BodyCollector {
  readonly #exchange: Exchange;
  readonly #limit: number;
  readonly #budget: BodyBudget;
  /** Bytes that the body will have, as far as it is told: no more is ever held ready. */
  readonly #expected: number;
  #buffer: Buffer = nothing;
  #length = 0;

  /** @param limit bytes that the body may have at most */
  constructor(exchange: Exchange, limit: number, budget: BodyBudget) {
    this.#exchange = exchange;
    this.#limit = limit;
    this.#budget = budget;
    this.#expected = Number(exchange.request.headers["content-length"] ?? limit);
  }

  /** Adds a piece. @throws Refusal `body_too_large` or `busy` */
  add(piece: Buffer): void {
    const length = this.#length + piece.length;
    if (length > this.#limit) throw bodyTooLarge(this.#limit);
    if (piece.length === this.#expected) {
      // A body in one piece is taken as it is.
      this.#budget.take(this.#exchange, length);
      this.#buffer = piece;
      this.#length = length;
      return;
    }
    if (length > this.#buffer.length) this.#grow(length);
    piece.copy(this.#buffer, this.#length);
    this.#length = length;
    giveBack(piece);
  }

  #grow(needed: number): void {
    const ready = Math.max(GROWTH * this.#length, 2 * this.#buffer.length, FIRST_BYTES);
    const capacity = Math.max(needed, Math.min(ready, this.#expected));
    this.#budget.take(this.#exchange, capacity - this.#buffer.length);
    const grown = Buffer.allocUnsafeSlow(capacity);
    this.#buffer.copy(grown, 0, 0, this.#length);
    giveBack(this.#buffer);
    this.#buffer = grown;
  }

  /** The whole body so far. */
  get body(): Buffer {
    const isFull = this.#length === this.#buffer.length;
    return isFull ? this.#buffer : this.#buffer.subarray(0, this.#length);
  }
}

/** The refusal of a body that is larger than `limit` bytes, which it names. */
export function bodyTooLarge(limit: number): Refusal {
  return new Refusal("body_too_large", {
    message: `Request body too large: the limit is ${limit} bytes`,
  });
}
