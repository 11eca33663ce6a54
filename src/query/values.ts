/** The small values that fields of several operations have. */

import type { Steps } from "../cooperative-scheduling.ts";
import { ByteText, tokenOf } from "../json/bytes.ts";
import { quoteName } from "../json/fault.ts";
import type { Rest } from "../json/rest.ts";
import { askWhether } from "../suggestion.ts";
import type { BodyReader } from "./body-reader.ts";
import { fullAlone, type Kind, named } from "./kind.ts";
import { isPlainText, NameCache, plainNamePattern, plainNameRule } from "./names.ts";
import { meantWord } from "./synonyms.ts";

const NINE = 0x39;
const ZERO = 0x30;

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

/** Which word was probably meant by another one. */
type MeantWord = (found: string, words: readonly string[]) => string | undefined;

/** A few words of which a field takes one, written exactly so. */
class WordList<Word extends string> {
  readonly #words: readonly {
    readonly word: Word;
    readonly text: ByteText;
    readonly token: Uint8Array;
  }[];
  readonly #allowed: string;
  readonly #meant: MeantWord;
  readonly #ofFull: readonly string[];

  constructor(words: readonly Word[], meant: MeantWord, ofFull: readonly string[]) {
    this.#meant = meant;
    this.#ofFull = ofFull;
    this.#words = words.map((word) => ({
      word,
      text: ByteText.from(word),
      token: tokenOf(word),
    }));
    this.#allowed = words.join(", ");
  }

  /** Reads a word of the list. @throws QueryRefused */
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
    const meant = this.#meant(
      found,
      this.#words.map(({ word }) => word),
    );
    const hint = this.#ofFull.includes(found) ? fullAlone : askWhether(meant);
    const problem = `the value ${quoteName(found)} is not one of those allowed: ${this.#allowed}${hint}`;
    throw reader.refusal("invalid_value", problem, start);
  }
}

/**
 * One of a few words, written exactly so.
 *
 * @param note takes it
 * @param meant finds what another one meant
 * @param ofFull words that the full grammar alone has here
 */
export function oneOf<const Word extends string, Draft = unknown>(
  words: readonly Word[],
  note?: (draft: Draft, word: Word) => void,
  meant: MeantWord = meantWord,
  ofFull: readonly string[] = [],
): Kind<Word, Draft> {
  const known = new WordList(words, meant, ofFull);
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
    count = byte >= ZERO && byte <= NINE ? count * 10 + (byte - ZERO) : Number.NaN;
  }
  if (count <= Number.MAX_SAFE_INTEGER) return;
  const problem = `the number is not allowed here; allowed: digits only, at most ${Number.MAX_SAFE_INTEGER}`;
  throw reader.refusal("invalid_value", problem, start);
}

/** How many elements an array has. */
export interface ListBounds {
  /** 1 unless it says otherwise. */
  readonly least?: 0 | 1;
  readonly most?: number;
}

/** An array of one or more elements, within bounds. */
export function list<Value, Draft>(
  kind: Kind<Value, Draft>,
  bounds: ListBounds = {},
): Kind<Value[], Draft> {
  const { least = 1, most } = bounds;
  return {
    read: (reader, draft) => readList(reader, () => kind.read(reader, draft), bounds),
    schema: (reference) => ({
      type: "array",
      items: kind.schema(reference),
      ...(least === 0 ? {} : { minItems: least }),
      ...(most === undefined ? {} : { maxItems: most }),
    }),
  };
}

/** An object, or in the full grammar an array of up to so many. */
export function oneOrMany<Value, Draft>(
  kind: Kind<Value, Draft>,
  most: number,
): Kind<Value | Value[], Draft> {
  const many = list(kind, { most });
  return {
    read(reader, draft) {
      const found = reader.kind();
      if (found === "an object") return kind.read(reader, draft);
      const isArray = found === "an array";
      if (isArray && reader.isFull) return many.read(reader, draft);
      const wanted = reader.isFull ? "an object or an array" : "an object";
      const problem = `${wanted} is expected, ${found} was found${isArray ? fullAlone : ""}`;
      throw reader.refusal("wrong_type", problem);
    },
    schema: (reference) =>
      reference.level === "full"
        ? { oneOf: [kind.schema(reference), many.schema(reference)] }
        : kind.schema(reference),
  };
}

/** A value that is neither array nor object. */
export const literal: Kind<Literal, unknown> = {
  read(reader) {
    const kind = reader.kind();
    if (kind !== "an array" && kind !== "an object") return reader.skipValue();
    const problem = `a text, a number, true, false or null is expected, ${kind} was found`;
    throw reader.refusal("wrong_type", problem);
  },
  schema: () => ({ type: ["string", "number", "boolean", "null"] }),
};

/** A `literal`, once parsed. */
export type Literal = null | boolean | number | bigint | string;

/** Reads an array within bounds, each element by `readElement`, and keeps the path. */
function readList(
  reader: BodyReader,
  readElement: () => Rest,
  { least = 1, most }: ListBounds,
): Rest {
  const start = reader.position;
  if (!reader.openArray()) {
    if (least === 0) return undefined;
    const problem = "the array is empty; at least one element is needed";
    throw reader.refusal("invalid_value", problem, start);
  }
  if (most === undefined) return readElements(reader, readElement);
  let left = most;
  return readElements(reader, () => {
    if (left-- > 0) return readElement();
    const problem = `the array is too long; at most ${most} elements are allowed`;
    throw reader.refusal("invalid_value", problem, start);
  });
}

/**
 * Reads the elements of an array that was entered and has some, and keeps the path. Who reads several at once moves
 * the index on that ends it.
 */
export function readElements(reader: BodyReader, readElement: () => Rest): Rest {
  const { path } = reader;
  let index = 0;
  do {
    path.push(index);
    const rest = readElement() ?? reader.pause();
    if (rest !== undefined) return readElementsAfter(rest, reader, readElement);
    index = reader.leaveElement();
  } while (reader.nextElement());
  return undefined;
}

function* readElementsAfter(
  begun: Steps<void>,
  reader: BodyReader,
  readElement: () => Rest,
): Steps<void> {
  yield* begun;
  for (let index = reader.leaveElement(); reader.nextElement(); index = reader.leaveElement()) {
    reader.path.push(index);
    const rest = readElement() ?? reader.pause();
    if (rest !== undefined) yield* rest;
  }
}
