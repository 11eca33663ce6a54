import type { Steps } from "../cooperative-scheduling.ts";
import { quoteName } from "../json/fault.ts";
import { ByteText, type Rest, tokenOf } from "../json/reader.ts";
import { formatHint } from "../suggestion.ts";
import type { BodyReader } from "./body-reader.ts";
import { type Fields, fieldsAt, fullOnly, type Kind, type ObjectOf, objectSchema } from "./kind.ts";
import type { OperationDraft } from "./operation-draft.ts";
import { meantField } from "./synonyms.ts";

interface KnownField<Draft> {
  readonly name: string;
  readonly required: boolean;
  readonly read: Kind<unknown, Draft>["read"];
  readonly index: number;
  readonly text: ByteText;
  /** The key as it nearly always appears, compared before the key is parsed. */
  readonly token: Uint8Array;
}

/** An object of exactly these fields, in any order, each at most once. */
export class ObjectShape<Draft> {
  readonly #fields: readonly KnownField<Draft>[];
  readonly #allowed: string;
  readonly #needed: string;
  /** The same object in the core grammar. */
  readonly #core: ObjectShape<Draft>;
  readonly #instead: readonly string[];
  readonly #ofFull: readonly string[];

  /**
   * @param alternative for messages: what may replace these fields
   * @param instead the names of those alternatives
   * @param ofFull names of fields that only the full grammar has here
   */
  constructor(
    fields: Fields<Draft>,
    alternative = "",
    instead: readonly string[] = [],
    ofFull: readonly string[] = [],
  ) {
    this.#instead = instead;
    this.#ofFull = ofFull;
    this.#fields = Object.entries(fields).map(([name, { required, read }], index) => {
      const text = ByteText.from(name);
      return { name, required, read, index, text, token: tokenOf(name) };
    });
    this.#allowed = namesOf(this.#fields) + alternative;
    this.#needed = namesOf(this.#fields.filter((field) => field.required)) + alternative;
    const names = Object.keys(fields);
    const core = fieldsAt(fields, "core");
    const others = names.filter((name) => !(name in core));
    this.#core = others.length === 0 ? this : new ObjectShape(core, alternative, instead, others);
  }

  read(reader: BodyReader, draft: Draft): Rest {
    return (reader.isFull ? this : this.#core).#read(reader, draft);
  }

  #read(reader: BodyReader, draft: Draft): Rest {
    const start = reader.position;
    const seen: KnownField<Draft>[] = [];
    for (let more = reader.openObject(); more; more = reader.nextMember()) {
      const rest = this.#readField(reader, draft, seen);
      if (rest !== undefined) return this.#readOn(rest, reader, draft, seen, start);
      reader.path.pop();
    }
    this.#requireAll(reader, seen, start);
    return undefined;
  }

  *#readOn(
    begun: Steps<void>,
    reader: BodyReader,
    draft: Draft,
    seen: KnownField<Draft>[],
    start: number,
  ): Steps<void> {
    yield* begun;
    reader.path.pop();
    while (reader.nextMember()) {
      const rest = this.#readField(reader, draft, seen);
      if (rest !== undefined) yield* rest;
      reader.path.pop();
    }
    this.#requireAll(reader, seen, start);
  }

  /** Reads a key and its value. Leaves the field on the path. */
  #readField(reader: BodyReader, draft: Draft, seen: KnownField<Draft>[]): Rest {
    const start = reader.position;
    const field = this.#readKey(reader, (seen.at(-1)?.index ?? -1) + 1);
    if (seen.includes(field)) {
      const problem = `the field ${quoteName(field.name)} is given twice; each field is allowed once`;
      throw reader.refusal("duplicate_key", problem, start);
    }
    seen.push(field);
    reader.countPart();
    reader.path.push(field.name);
    return field.read(reader, draft);
  }

  /** @param likely index of the field to try first, since bodies tend to keep the order */
  #readKey(reader: BodyReader, likely: number): KnownField<Draft> {
    const first = this.#fields[likely];
    if (first !== undefined && reader.skipKeyToken(first.token)) return first;
    for (const field of this.#fields) {
      if (reader.skipKeyToken(field.token)) return field;
    }
    return this.#readRareKey(reader);
  }

  /** Reads a key that is written with escapes, or is unknown. */
  #readRareKey(reader: BodyReader): KnownField<Draft> {
    const start = reader.position;
    const key = reader.readKey();
    const field = this.#fields.find(({ text }) => text.equals(key));
    if (field !== undefined) return field;
    const name = key.toString();
    const meant = meantField(name, [...this.#fields.map((known) => known.name), ...this.#instead]);
    const alone = `; ${name} must be the only field: put the others into it, or both into and`;
    const others = this.#instead.includes(name) ? alone : formatHint(meant);
    const hint = this.#ofFull.includes(name) ? fullOnly : others;
    const problem = `the field ${quoteName(name)} is unknown; allowed: ${this.#allowed}${hint}`;
    throw reader.refusal("unknown_field", problem, start);
  }

  #requireAll(reader: BodyReader, seen: KnownField<Draft>[], start: number): void {
    const missing = this.#fields.find((field) => field.required && !seen.includes(field));
    if (missing === undefined) return;
    const problem = `the field ${quoteName(missing.name)} is missing; required: ${this.#needed}`;
    throw reader.refusal("missing_field", problem, start);
  }
}

function namesOf(fields: readonly { readonly name: string }[]): string {
  return fields.map((field) => field.name).join(", ");
}

export function object<Of extends Fields<OperationDraft>>(fields: Of): Kind<ObjectOf<Of>> {
  const shape = new ObjectShape<OperationDraft>(fields);
  return { read: (reader, draft) => shape.read(reader, draft), schema: objectSchema(fields) };
}
