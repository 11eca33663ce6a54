import type { Fragment } from "../sql/fragment.ts";
import type { PresentValue } from "../sql/scope.ts";
import type { Raw } from "./session.ts";
import type { Bound } from "./statements.ts";

/** How the values of a type travel: bound to a statement on the way there, JSON on the way back. */
export interface Codec {
  /** What is stored for a value, or undefined if the type does not take it. */
  store(value: PresentValue): Bound | Fragment | undefined;
  /** The same to compare with the value, where that differs. */
  compare?(value: PresentValue): Bound | Fragment | undefined;
  /** JSON text of a value. */
  encode(raw: Raw): string;
}
