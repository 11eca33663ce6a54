import type { Fragment } from "../sql/fragment.ts";

/**
 * A connection that is lent for one transaction. Its methods throw the server's error as the
 * driver gives it, and `ConnectionLost` for whatever else happens on the way there.
 */
export interface Session {
  /** Runs a fragment and returns how many rows it changed. */
  run(fragment: Fragment): Promise<number>;
  /** Runs words of our own, which hold no values. */
  command(words: string): Promise<void>;
}
