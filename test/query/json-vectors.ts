/** Documents that tell a strict JSON parser from a lax one, named as the public test suite does. */

import { quoteName } from "../../src/json/fault.ts";

/** A document; its name begins with `y_` (JSON), `n_` (none) or `i_` (a parser may choose). */
export interface Vector {
  readonly name: string;
  readonly bytes: Buffer;
}

const scalars = [
  "0",
  "-0",
  "1E+2",
  "-1.5e-3",
  '""',
  '"\\u00e9\\n"',
  '"é漢😀\u007f\u2028"',
  "true",
  "null",
];
const wrappings: readonly ((document: string) => string)[] = [
  (document) => document,
  (document) => ` \t\r\n${document} \t\r\n`,
  (document) => `[${document}]`,
  (document) => `[ ${document} , ${document} ]`,
  (document) => `{"a":${document}}`,
  (document) => `{ "" : ${document} , "\\u0000" : [ ] }`,
  (document) => `{"a":${document},"a":{}}`,
];

/** Those in which nothing becomes JSON that was none before, as `1,2` does in an array. */
const strictWrappings = wrappings.filter((wrap) => !wrap("").startsWith("["));

const brokenScalars = [
  ..."- +1 01 -01 .5 -.5 1. 1.e1 1e 1e+ 1ea 0x1 1_0 1,5 ١ NaN -Infinity nul nulL True undefined 'a'".split(
    " ",
  ),
  ...'a" " "\\" "\\x41" "\\u12" "\\u12g4" "\\U0041" "\\a"'.split(" "),
  ...["\n", "\t", "\0", "\u001f"].map((control) => `"a${control}"`),
  ...'[1,] [,1] [1,,2] [1 [ ] } {"a"} {"a":} {"a":1,} {,} {a:1} {1:1} {\'a\':1} [1}'.split(" "),
  ...[
    "[1 2]",
    '{"a" 1}',
    '{"a":1 "b":2}',
    "1 1",
    "/**/1",
    "1//",
    "\u00a01",
    "\v1",
    "\f1",
    "\ufeff1",
  ],
  "",
  "[".repeat(100_000),
  '{"a":'.repeat(100_000),
];

const halves = ["\\ud800", "\\udc00\\ud800", "\\ud800\\ud800", "\\udfff", "\\ud83dx"];
const brokenUtf8 = [
  "ff",
  "80",
  "c3",
  "c080",
  "c0af",
  "e080af",
  "eda080",
  "edbfbf",
  "f08080af",
  "f4908080",
  "f888808080",
];

function vector(letter: "y" | "n" | "i", document: string): Vector {
  return { name: `${letter}_ ${quoteName(document)}`, bytes: Buffer.from(document) };
}

function brokenString(hex: string): Vector {
  return { name: `n_ bytes ${hex}`, bytes: Buffer.from(`22${hex}22`, "hex") };
}

/** The project's own documents. */
export const jsonVectors: readonly Vector[] = [
  ...scalars.flatMap((scalar) => wrappings.map((wrap) => vector("y", wrap(scalar)))),
  ...brokenScalars.flatMap((broken) => strictWrappings.map((wrap) => vector("n", wrap(broken)))),
  ...brokenUtf8.map(brokenString),
  ...halves.map((half) => vector("i", `"${half}"`)),
  ...["1e999", "-1e-999", "9".repeat(500)].map((number) => vector("i", number)),
];
