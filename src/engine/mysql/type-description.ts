import type { Mark } from "./type-words.ts";

/** What the catalog says about the type of a column. */
export interface TypeDescription {
  /** The word of the type, without length and the like. */
  readonly dataType: string;
  /** The whole type, as in `enum('a','b')`. */
  readonly columnType: string;
  /** What the engine has remembered of the type, if it made the column. */
  readonly mark: Mark | undefined;
  /** Of strings, in characters; of bytes, in bytes. */
  readonly length: number;
  /** Places behind the point of a decimal. */
  readonly scale: number;
  /** Places of a second. */
  readonly precision: number;
}
