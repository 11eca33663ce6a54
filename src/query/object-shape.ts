/** Closed objects: a list of fields, and the reader that refuses everything else. */

import { ByteText } from "./byte-text.ts";
import type { JsonReader } from "./json-reader.ts";
import { quoteName } from "./refusal.ts";

/** One field of a closed object; `read` takes its value from the reader and notes what matters. */
export interface Field<Draft> {
  readonly name: string;
  readonly required: boolean;
  readonly read: (reader: JsonReader, draft: Draft) => void;
}

/** A field that may not be left out. */
export function required<Draft>(name: string, read: Field<Draft>["read"]): Field<Draft> {
  return { name, required: true, read };
}

/** A field that may be left out. */
export function optional<Draft>(name: string, read: Field<Draft>["read"]): Field<Draft> {
  return { name, required: false, read };
}

/** An object of exactly these fields, in any order, each at most once. */
export class ObjectShape<Draft> {
  private readonly fields: readonly { readonly key: ByteText; readonly field: Field<Draft> }[];
  private readonly allowed: string;
  private readonly needed: string;

  /** `alternative` says, for messages, what may stand here instead of these fields. */
  constructor(fields: readonly Field<Draft>[], alternative = "") {
    this.fields = fields.map((field) => ({ key: ByteText.from(field.name), field }));
    this.allowed = namesOf(fields) + alternative;
    this.needed = namesOf(fields.filter((field) => field.required)) + alternative;
  }

  /** Reads an object of this shape into the draft. Throws `QueryRefused`. */
  read(reader: JsonReader, draft: Draft): void {
    const start = reader.position;
    const seen: Field<Draft>[] = [];
    for (let more = reader.openObject(); more; more = reader.nextMember()) {
      const field = this.readKey(reader, seen);
      seen.push(field);
      reader.path.push(field.name);
      field.read(reader, draft);
      reader.path.pop();
    }
    this.requireAll(reader, seen, start);
  }

  private readKey(reader: JsonReader, seen: readonly Field<Draft>[]): Field<Draft> {
    const start = reader.position;
    const key = reader.readKey();
    const field = this.find(key);
    if (field === undefined) {
      const problem = `the field ${quoteName(key.toString())} is unknown; allowed: ${this.allowed}`;
      throw reader.refusal("unknown_field", problem, start);
    }
    if (seen.includes(field)) {
      const problem = `the field ${quoteName(field.name)} is given twice; each may stand once`;
      throw reader.refusal("duplicate_key", problem, start);
    }
    return field;
  }

  private find(key: ByteText): Field<Draft> | undefined {
    for (const known of this.fields) {
      if (known.key.equals(key)) return known.field;
    }
    return undefined;
  }

  private requireAll(reader: JsonReader, seen: readonly Field<Draft>[], start: number): void {
    for (const { field } of this.fields) {
      if (!field.required || seen.includes(field)) continue;
      const problem = `the field ${quoteName(field.name)} is left out; required: ${this.needed}`;
      throw reader.refusal("missing_field", problem, start);
    }
  }
}

function namesOf<Draft>(fields: readonly Field<Draft>[]): string {
  return fields.map((field) => field.name).join(", ");
}
