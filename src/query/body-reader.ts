/** A reader of query bodies, which knows where in the grammar it is. */

import { JsonFault } from "../json/fault.ts";
import { JsonReader } from "../json/reader.ts";
import { type BodyLocation, type QueryRefusalCode, QueryRefused } from "./refusal.ts";

/** Reads a query body, and names the place of what is wrong. */
export class BodyReader extends JsonReader {
  /** The fields and indices that lead to what is being read; kept by those who know the grammar. */
  readonly path: (string | number)[] = [];
  /** Whether all of the grammar is read, or its core alone. */
  readonly isFull: boolean;

  constructor(bytes: Buffer, isFull: boolean) {
    super(bytes);
    this.isFull = isFull;
  }

  /** Goes so many elements on in the array whose present index ends the path. */
  moveIndexOn(elements: number): void {
    if (elements > 0) this.path.push(this.leaveElement() + elements - 1);
  }

  /** Leaves the element of an array whose index ends the path. @returns the next one's */
  leaveElement(): number {
    return Number(this.path.pop()) + 1;
  }

  /** The error for a fault here, or at another byte offset of the same place in the grammar. */
  refusal(code: QueryRefusalCode, problem: string, offset = this.position): QueryRefused {
    return new QueryRefused(code, problem, this.location(offset));
  }

  /** Where the reader is; another offset may be named for the same path. */
  location(offset = this.position): BodyLocation {
    const segments = this.path.map((segment) =>
      typeof segment === "number" ? `[${segment}]` : `.${segment}`,
    );
    return { path: segments.join("").replace(/^\./, ""), offset };
  }

  /** A fault of the JSON as the refusal of a query; any other error as it is. */
  asRefusal(error: unknown): unknown {
    if (!(error instanceof JsonFault)) return error;
    return this.refusal(error.code, error.problem, error.offset);
  }
}
