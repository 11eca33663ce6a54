import { formatHint } from "../base/suggestion.ts";
import type { Parsed } from "../json/exact.ts";
import { quoteName } from "../json/fault.ts";
import { STRIDE, Word } from "../json/tape.ts";
import { Deferred } from "./deferred.ts";
import { type Fields, fieldsAt, fullOnly, type Kind, type ObjectOf, objectSchema } from "./kind.ts";
import type { OperationNode } from "./node.ts";
import { meantField } from "./synonyms.ts";
import type { QueryTape } from "./tape.ts";

interface KnownField {
  readonly name: string;
  readonly required: boolean;
  readonly parse: Kind<unknown>["parse"];
  readonly index: number;
  readonly word: Word;
}

/** An object of exactly these fields, in any order, each at most once. */
export class ObjectShape {
  readonly #fields: readonly KnownField[];
  readonly #allowed: string;
  readonly #needed: string;
  /** The same object in the core grammar. */
  readonly #core: ObjectShape;
  readonly #instead: readonly string[];
  readonly #ofFull: readonly string[];

  /**
   * @param alternative for messages: what may replace these fields
   * @param instead the names of those alternatives
   * @param ofFull names of fields that only the full grammar has here
   */
  constructor(
    fields: Fields,
    alternative = "",
    instead: readonly string[] = [],
    ofFull: readonly string[] = [],
  ) {
    this.#instead = instead;
    this.#ofFull = ofFull;
    this.#fields = Object.entries(fields).map(([name, { required, parse }], index) => {
      return { name, required, parse, index, word: new Word(name) };
    });
    this.#allowed = namesOf(this.#fields) + alternative;
    this.#needed = namesOf(this.#fields.filter((field) => field.required)) + alternative;
    const names = Object.keys(fields);
    const core = fieldsAt(fields, "core");
    const others = names.filter((name) => !(name in core));
    this.#core = others.length === 0 ? this : new ObjectShape(core, alternative, instead, others);
  }

  /** The object of the fields. @throws QueryRefused */
  parse(tape: QueryTape, object: number, node: OperationNode): Parsed {
    return (tape.isFull ? this : this.#core).#parse(tape, object, node);
  }

  #parse(tape: QueryTape, object: number, node: OperationNode): Parsed {
    tape.expect(object, "an object");
    const parsed: Parsed = {};
    const seen: KnownField[] = [];
    const end = tape.next(object);
    let likely = 0;
    for (let key = object + STRIDE; key < end; key = tape.next(key + STRIDE)) {
      const field = this.#fieldOf(tape, key, likely);
      likely = field.index + 1;
      if (seen.includes(field)) {
        const problem = `the field ${quoteName(field.name)} is given twice; each field is allowed once`;
        throw tape.refusal("duplicate_key", problem, key);
      }
      seen.push(field);
      const value = field.parse(tape, key + STRIDE, node);
      if (value === undefined) continue;
      parsed[field.name] = value;
      if (value instanceof Deferred) value.belongTo(parsed, field.name);
    }
    const missing = this.#fields.find((field) => field.required && !seen.includes(field));
    if (missing === undefined) return parsed;
    const problem = `the field ${quoteName(missing.name)} is missing; required: ${this.#needed}`;
    throw tape.refusal("missing_field", problem, object);
  }

  /** @param likely index of the field to try first, since bodies tend to keep the order */
  #fieldOf(tape: QueryTape, key: number, likely: number): KnownField {
    const first = this.#fields[likely];
    if (first !== undefined && tape.is(key, first.word)) return first;
    for (const field of this.#fields) if (tape.is(key, field.word)) return field;
    const name = tape.name(key);
    const meant = meantField(name, [...this.#fields.map((known) => known.name), ...this.#instead]);
    const alone = `; ${name} must be the only field: put the others into it, or both into and`;
    const others = this.#instead.includes(name) ? alone : formatHint(meant);
    const hint = this.#ofFull.includes(name) ? fullOnly : others;
    const problem = `the field ${quoteName(name)} is unknown; allowed: ${this.#allowed}${hint}`;
    throw tape.refusal("unknown_field", problem, key);
  }
}

function namesOf(fields: readonly { readonly name: string }[]): string {
  return fields.map((field) => field.name).join(", ");
}

export function object<Of extends Fields>(fields: Of): Kind<ObjectOf<Of>> {
  const shape = new ObjectShape(fields);
  return {
    parse: (tape, token, node) => shape.parse(tape, token, node),
    schema: objectSchema(fields),
  };
}
