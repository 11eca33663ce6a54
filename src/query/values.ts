/** The small values that fields of several operations have. */

import { ByteText } from "./byte-text.ts";
import type { JsonReader } from "./json-reader.ts";
import { isPlainName, plainNameRule } from "./names.ts";
import { quoteName } from "./refusal.ts";

/** Reads the name of a database or table. */
export function readPlainName(reader: JsonReader): string {
  const start = reader.position;
  reader.expect("a string");
  const name = reader.readString().toString();
  if (!isPlainName(name)) {
    const problem = `${quoteName(name)} is no plain name; allowed: ${plainNameRule}`;
    throw reader.refusal("invalid_name", problem, start);
  }
  return name;
}

/** A few words of which a field takes one, written exactly so. */
export class WordList<Word extends string> {
  private readonly words: readonly { readonly word: Word; readonly text: ByteText }[];
  private readonly allowed: string;

  constructor(words: readonly Word[]) {
    this.words = words.map((word) => ({ word, text: ByteText.from(word) }));
    this.allowed = words.join(", ");
  }

  /** Reads a word of the list. Throws `QueryRefused`. */
  read(reader: JsonReader): Word {
    const start = reader.position;
    reader.expect("a string");
    const text = reader.readString();
    for (const known of this.words) {
      if (known.text.equals(text)) return known.word;
    }
    const problem = `the value is not one of those allowed: ${this.allowed}`;
    throw reader.refusal("invalid_value", problem, start);
  }
}

/** Reads past true or false. */
export function readBoolean(reader: JsonReader): void {
  reader.expect("a boolean");
  reader.skipValue();
}

const mostDigits = String(Number.MAX_SAFE_INTEGER).length;

/** Reads past a count of rows: an integer from 0 to 2^53 - 1, written in digits only. */
export function readCount(reader: JsonReader): void {
  const start = reader.position;
  reader.expect("a number");
  reader.skipNumber();
  const short = reader.position - start <= mostDigits;
  const text = short ? reader.bytes.toString("latin1", start, reader.position) : "";
  if (!/^[0-9]+$/.test(text) || !Number.isSafeInteger(Number(text))) {
    const problem = `the number is not allowed here; allowed: digits only, at most ${Number.MAX_SAFE_INTEGER}`;
    throw reader.refusal("invalid_value", problem, start);
  }
}

/** Reads an array of at least one element, each by `readElement`, and keeps the path. */
export function readList(reader: JsonReader, readElement: () => void): void {
  const start = reader.position;
  const { path } = reader;
  let count = 0;
  for (let more = reader.openArray(); more; more = reader.nextElement()) {
    path.push(count);
    readElement();
    path.pop();
    count++;
  }
  if (count === 0) {
    throw reader.refusal(
      "invalid_value",
      "the array is empty; at least one element is needed",
      start,
    );
  }
}
