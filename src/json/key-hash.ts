/** A hash of column names that nobody can make collide on purpose. */

import { randomFillSync } from "node:crypto";
import type { ByteText } from "./byte-text.ts";

/** Bytes that a key has at the most to be hashed: those of a column name. */
export const longestHashed = 512;

const multipliers = randomFillSync(new Int32Array(longestHashed + 1));

/**
 * Hashes a column name to 32 bits, of which the upper ones are the better ones.
 *
 * A sum of the bytes, each times a random number of its place: multilinear hashing, by which two
 * texts chosen without knowing the numbers meet in the upper 25 bits by chance alone (Lemire and
 * Kaser, "Strongly universal string hashing is fast", The Computer Journal 57, 2014). Each process
 * draws its own numbers. No byte of a column name is 0, so texts of different lengths differ too.
 */
export function hashKey({ bytes, start, end }: ByteText): number {
  let sum = 0;
  for (let position = start; position < end; position++) {
    sum = (sum + Math.imul(multipliers[position - start] ?? 0, bytes[position] ?? 0)) | 0;
  }
  return sum;
}
