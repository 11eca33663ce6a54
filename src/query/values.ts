/** The small values that fields of several operations have. */

import type { Steps } from "../cooperative-scheduling.ts";
import { ByteText, tokenOf } from "../json/byte-text.ts";
import { quoteName } from "../json/fault.ts";
import type { Rest } from "../json/rest.ts";
import { didYouMean } from "../suggestion.ts";
import type { BodyReader } from "./body-reader.ts";
import type { Kind } from "./kind.ts";
import { NameCache } from "./name-cache.ts";
import { isPlainText, plainNamePattern, plainNameRule } from "./names.ts";
import { named } from "./schema.ts";

const nine = 0x39;
const zero = 0x30;

const plainNames = new NameCache();

/** The name of a database or table; `note` takes it. */
export function plainName<Draft>(note: (draft: Draft, name: string) => void): Kind<string, Draft> {
  return {
    read: (reader, draft) => {
      note(draft, readPlainName(reader));
      return undefined;
    },
    schema: named("PlainName", () => ({ type: "string", pattern: `^${plainNamePattern}$` })),
  };
}

function readPlainName(reader: BodyReader): string {
  const start = reader.position;
  reader.expect("a string");
  const text = reader.readString();
  if (!isPlainText(text)) {
    const problem = `${quoteName(text.toString())} is no plain name; allowed: ${plainNameRule}`;
    throw reader.refusal("invalid_name", problem, start);
  }
  return plainNames.take(text);
}

/** A few words of which a field takes one, written exactly so. */
class WordList<Word extends string> {
  readonly #words: readonly {
    readonly word: Word;
    readonly text: ByteText;
    readonly token: Uint8Array;
  }[];
  readonly #allowed: string;

  constructor(words: readonly Word[]) {
    this.#words = words.map((word) => ({
      word,
      text: ByteText.from(word),
      token: tokenOf(word),
    }));
    this.#allowed = words.join(", ");
  }

  /** Reads a word of the list. Throws `QueryRefused`. */
  read(reader: BodyReader): Word {
    for (const { word, token } of this.#words) {
      if (reader.skipToken(token)) return word;
    }
    const start = reader.position;
    reader.expect("a string");
    const text = reader.readString();
    const known = this.#words.find((candidate) => candidate.text.equals(text));
    if (known !== undefined) return known.word;
    const found = text.toString();
    const meant = didYouMean(
      found,
      this.#words.map(({ word }) => word),
    );
    const problem = `the value ${quoteName(found)} is not one of those allowed: ${this.#allowed}${meant}`;
    throw reader.refusal("invalid_value", problem, start);
  }
}

/** One of a few words, written exactly so; `note` takes it. */
export function oneOf<const Word extends string, Draft = unknown>(
  words: readonly Word[],
  note?: (draft: Draft, word: Word) => void,
): Kind<Word, Draft> {
  const known = new WordList(words);
  return {
    read(reader, draft) {
      const word = known.read(reader);
      note?.(draft, word);
      return undefined;
    },
    schema: () => ({ enum: words }),
  };
}

/** True or false. */
export const flag: Kind<boolean, unknown> = {
  read(reader) {
    reader.expect("a boolean");
    return reader.skipValue();
  },
  schema: () => ({ type: "boolean" }),
};

/** A number of rows: an integer from 0 to 2^53 - 1, written in digits only. */
export const count: Kind<number, unknown> = {
  read: readCount,
  schema: () => ({ type: "integer", minimum: 0, maximum: Number.MAX_SAFE_INTEGER }),
};

function readCount(reader: BodyReader): undefined {
  const { bytes, position: start } = reader;
  reader.expect("a number");
  reader.skipNumber();
  let count = 0;
  for (let position = start; position < reader.position; position++) {
    const byte = bytes[position] ?? 0;
    // Rounding begins past the limit, so what is rounded is refused too.
    count = byte >= zero && byte <= nine ? count * 10 + (byte - zero) : Number.NaN;
  }
  if (count <= Number.MAX_SAFE_INTEGER) return;
  const problem = `the number is not allowed here; allowed: digits only, at most ${Number.MAX_SAFE_INTEGER}`;
  throw reader.refusal("invalid_value", problem, start);
}

/** An array of at least one element. */
export function list<Value, Draft>(kind: Kind<Value, Draft>): Kind<Value[], Draft> {
  return {
    read: (reader, draft) => readList(reader, () => kind.read(reader, draft)),
    schema: (reference) => ({ type: "array", items: kind.schema(reference), minItems: 1 }),
  };
}

/** Reads an array of at least one element, each by `readElement`, and keeps the path. */
export function readList(reader: BodyReader, readElement: () => Rest): Rest {
  const start = reader.position;
  if (!reader.openArray()) {
    const problem = "the array is empty; at least one element is needed";
    throw reader.refusal("invalid_value", problem, start);
  }
  return readElements(reader, readElement);
}

/** Reads the elements of an array that was entered and has some, and keeps the path. */
export function readElements(reader: BodyReader, readElement: () => Rest): Rest {
  const { path } = reader;
  let index = 0;
  do {
    path.push(index);
    const rest = readElement() ?? reader.pause();
    if (rest !== undefined) return readElementsAfter(rest, reader, readElement, index);
    path.pop();
    index++;
  } while (reader.nextElement());
  return undefined;
}

function* readElementsAfter(
  begun: Steps<void>,
  reader: BodyReader,
  readElement: () => Rest,
  begunIndex: number,
): Steps<void> {
  const { path } = reader;
  yield* begun;
  path.pop();
  for (let index = begunIndex + 1; reader.nextElement(); index++) {
    path.push(index);
    const rest = readElement() ?? reader.pause();
    if (rest !== undefined) yield* rest;
    path.pop();
  }
}
