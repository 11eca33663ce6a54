import { JsonFault } from "../json/fault.ts";
import { JsonReader } from "../json/reader.ts";
import { type BodyLocation, type QueryRefusalCode, QueryRefused } from "./refusal.ts";

/** Conditions, columns, items and members of one operation, without its rows and listed values. */
const MOST_PARTS = 50_000;

/** A reader of query bodies that tracks its place in the grammar for error messages. */
export class BodyReader extends JsonReader {
  /** The fields and indices that lead to the current value. Maintained by the callers. */
  readonly path: (string | number)[] = [];
  /** False if only the core grammar is accepted. */
  readonly isFull: boolean;
  #parts = 0;

  constructor(bytes: Buffer, isFull: boolean) {
    super(bytes);
    this.isFull = isFull;
  }

  beginOperation(): void {
    this.#parts = 0;
  }

  /** @throws QueryRefused `query_too_complex` */
  countPart(): void {
    this.#parts++;
    if (this.#parts <= MOST_PARTS) return;
    const problem = `the operation has more than ${MOST_PARTS} parts (conditions, columns, items and members); send several operations`;
    throw this.refusal("query_too_complex", problem);
  }

  moveIndexOn(): void {
    this.path.push(Number(this.path.pop()) + 1);
  }

  /** A refusal with the current path, and the current offset by default. */
  refusal(code: QueryRefusalCode, problem: string, offset = this.position): QueryRefused {
    return new QueryRefused(code, problem, this.location(offset));
  }

  location(offset = this.position): BodyLocation {
    const segments = this.path.map((segment) =>
      typeof segment === "number" ? `[${segment}]` : `.${segment}`,
    );
    return { path: segments.join("").replace(/^\./, ""), offset };
  }

  /** Converts a JSON fault to a refusal of the query. Other errors are returned unchanged. */
  asRefusal(error: unknown): unknown {
    if (!(error instanceof JsonFault)) return error;
    return this.refusal(error.code, error.problem, error.offset);
  }
}
