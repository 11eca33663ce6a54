import fc from "fast-check";
import { type Choose, query, write } from "./arbitrary.ts";

/** Ways to damage a query body: in its bytes, and in the JSON that they spell. */

const structural = '"\\{}[]:,';
const pieces = [
  // White space and what some take for it.
  ..." \t\n\r\v\f\0\u00a0\u2028\ufeff\u3000",
  // Numbers, words, comments.
  ..."0 -0 01 1. .5 1e5 1e999 -1E-5 +1 0x1f 18446744073709551616 NaN Infinity nul True undefined".split(
    " ",
  ),
  "9".repeat(400),
  "/* */",
  "// \n",
  "'",
  // Strings and escapes.
  ...'\\u0000 \\u0061 \\ud800 \\udc00 \\ud83d\\ude00 \\x41 \\U0061 \\u00 \\\\ \\" \\/ \\u002e'.split(
    " ",
  ),
  '"":',
  ',"":0',
  // Keys that may be taken for others.
  ..."op Batch database Database DATABASE databas\\u0065 table from join value and"
    .split(" ")
    .map((key) => `"${key}":`),
  ',"database":"other"',
  '"database":"other",',
  ',"Database":"other"',
  ',"database ":"other"',
  ',"d\\u0061tabase":"other"',
  ',"table":"other"',
  ',"op":"drop_table"',
  ',"DropTable":{"database":"other","table":"t"}',
  "{}",
  "[]",
  // Long text, space and nesting, which are read by code of their own.
  `"${"lorem ".repeat(9)}"`,
  `"${"漢".repeat(60)}\\${"é".repeat(200)}"`,
  "x".repeat(33),
  "x".repeat(300),
  " ".repeat(17),
  "\n\t".repeat(30),
  ...[58, 59, 60, 61, 62, 63].map((depth) => "[".repeat(depth) + "]".repeat(depth)),
  '{"a":'.repeat(60) + "1".concat("}".repeat(60)),
  "[".repeat(70),
  '{"a":'.repeat(70),
  '{"not":'.repeat(63),
].map((piece) => Buffer.from(piece));

/** Bytes that are not UTF-8: overlong forms, halves of pairs, cut and stray sequences. */
const brokenBytes = ["ff", "80", "c3", "c080", "c1a1", "e08080", "e080a2", "eda080", "edb080"]
  .concat(["f08080a2", "f4908080", "f8888080", "fe", "c27f", "efbbbf", "e282"])
  .map((hex) => Buffer.from(hex, "hex"));

type Mutation = (body: Buffer, choose: Choose, other: Buffer) => Buffer;

const mutations: readonly Mutation[] = [
  // A bit.
  (body, choose) => {
    const copy = Buffer.from(body);
    const at = choose(body.length);
    copy[at] = (copy[at] ?? 0) ^ (1 << choose(8));
    return copy;
  },
  // A byte.
  (body, choose) => spliced(body, choose(body.length), 1, Buffer.of(choose(256))),
  (body, choose) =>
    spliced(body, choose(body.length + 1), choose(2), Buffer.from(structural.charAt(choose(8)))),
  // A stretch taken out, repeated, moved, or from another body.
  (body, choose) => spliced(body, choose(body.length), 1 + choose(8)),
  (body, choose) => spliced(body, choose(body.length + 1), 0, stretch(body, choose)),
  (body, choose) => spliced(body, choose(body.length + 1), choose(24), stretch(body, choose)),
  (body, choose, foreign) =>
    spliced(body, choose(body.length + 1), choose(12), stretch(foreign, choose)),
  (body, choose) => body.subarray(0, choose(body.length + 1)),
  // Something that parsers tend to disagree on.
  (body, choose) => spliced(body, choose(body.length + 1), 0, pick(pieces, choose)),
  (body, choose) => spliced(body, afterMark(body, choose), 0, pick(pieces, choose)),
  (body, choose) => spliced(body, choose(body.length + 1), choose(2), pick(brokenBytes, choose)),
  (body) => Buffer.concat([Buffer.from("\ufeff"), body]),
  respelled,
  otherCase,
  repeatedMember,
];

function pick<Item>(items: readonly Item[], choose: Choose): Item {
  const item = items[choose(items.length)];
  if (item === undefined) throw new RangeError("nothing to pick from");
  return item;
}

function spliced(
  body: Buffer,
  at: number,
  removed: number,
  inserted: Buffer = Buffer.alloc(0),
): Buffer {
  return Buffer.concat([body.subarray(0, at), inserted, body.subarray(at + removed)]);
}

function stretch(body: Buffer, choose: Choose): Buffer {
  const start = choose(body.length + 1);
  return body.subarray(start, start + 1 + choose(40));
}

/** An offset after a structural character, where a piece is likelier to fit. */
function afterMark(body: Buffer, choose: Choose): number {
  const mark = structural.charCodeAt(2 + choose(6));
  return body.indexOf(mark, choose(body.length + 1)) + 1;
}

/** Writes an ASCII letter as an escape, which changes the spelling and not the text. */
function respelled(body: Buffer, choose: Choose): Buffer {
  const at = choose(body.length);
  const spelled = `\\u00${(body[at] ?? 0).toString(16).padStart(2, "0")}`;
  return spliced(body, at, 1, Buffer.from(spelled));
}

function otherCase(body: Buffer, choose: Choose): Buffer {
  const copy = Buffer.from(body);
  const at = choose(body.length);
  copy[at] = (copy[at] ?? 0) ^ 0x20;
  return copy;
}

/** Gives a member's key and the start of its value a second time, somewhere behind a comma. */
function repeatedMember(body: Buffer, choose: Choose): Buffer {
  const text = body.toString("latin1");
  const members = [
    ...text.matchAll(/"[^"]{1,20}"\s*:\s*("[^"]*"|\d+|null|true|\[[^[\]]*\]|\{[^{}]*\})/g),
  ];
  const member = members[choose(members.length)];
  if (member === undefined) return body;
  const piece = choose(2) === 0 ? `${member[0]},` : `${member[0].toUpperCase()},`;
  const target = pick(members, choose);
  return spliced(body, target.index, 0, Buffer.from(piece, "latin1"));
}

/** Copies a body with one to four faults; `foreign` is a body to take pieces from. */
function mutate(body: Buffer, choose: Choose, foreign: Buffer): Buffer {
  let result = body;
  for (let fault = choose(4) * choose(2); fault >= 0; fault--) {
    if (result.length > 0) result = pick(mutations, choose)(result, choose, foreign);
  }
  return result;
}

/** Query bodies without end for the fuzzer: valid ones in every spelling, and damaged ones. */

const poolSize = 500;
const recentSize = 256;
/** Bodies that are kept for further damage at most. */
const mostKept = 5000;
/** Longer ones are not kept: damage in them is found in short ones too, and sooner. */
const longestKept = 4096;

export class BodyMaker {
  readonly #choose: Choose;
  readonly #values: readonly object[];
  readonly #kept: Buffer[] = [];
  readonly #recent: Buffer[] = [];

  constructor(choose: Choose) {
    this.#choose = choose;
    this.#values = fc.sample(query, { numRuns: poolSize, seed: choose(2 ** 31) });
  }

  get kept(): number {
    return this.#kept.length;
  }

  /** Has a body taken as a start for others, since it was of interest. */
  keep(body: Buffer): void {
    if (body.length > longestKept) return;
    if (this.#kept.length < mostKept) this.#kept.push(body);
    else this.#kept[this.#choose(mostKept)] = body;
  }

  /** The next body. One of eight is a valid query; the others are damaged. */
  next(): Buffer {
    const choose = this.#choose;
    if (choose(8) === 0) return this.#valid();
    const start = choose(2) === 0 ? this.#kept[choose(this.#kept.length)] : undefined;
    const foreign = this.#valid();
    return mutate(start ?? this.#valid(), choose, foreign);
  }

  #valid(): Buffer {
    // Writing takes longer than scanning, so each body is a start more than once.
    if (this.#choose(8) > 0) return this.#recent[this.#choose(recentSize)] ?? this.#write();
    return this.#write();
  }

  #write(): Buffer {
    const value = this.#values[this.#choose(this.#values.length)];
    const body = Buffer.from(write(value, this.#choose));
    this.#recent[this.#choose(recentSize)] = body;
    return body;
  }
}
