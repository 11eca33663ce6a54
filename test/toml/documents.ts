/** Arbitrary TOML documents, as odd as the format allows. */
import fc from "fast-check";

const bareName = fc.stringMatching(/^[A-Za-z0-9_-]{1,8}$/);
const printableButApostrophe = fc.stringMatching(/^[ -&(-~]{0,12}$/);

const basicString = fc.string({ unit: "grapheme", maxLength: 12 }).map(basic);
const literalString = printableButApostrophe.map((text) => `'${text}'`);
const multilineBasicString = fc
  .array(fc.constantFrom("\n", 'a"', 'b""', '\\"""', "\\\\", "\\\n  ", "#", "]", "}", "'", "\\t"))
  .chain((parts) =>
    fc.constantFrom("", '"', '""').map((end) => `"""x${parts.join(".")}.${end}"""`),
  );
const multilineLiteralString = fc
  .array(fc.constantFrom("\n", "a'", "b''", "\\", "#", "[", "{", '"""'))
  .chain((parts) => fc.constantFrom("", "'", "''").map((end) => `'''${parts.join(".")}.${end}'''`));
const plain = fc.constantFrom(
  ...["1", "-7", "0xFF", "1_000", "3.5e2", "inf", "-nan", "true", "false"],
  ...["1979-05-27T07:32:00Z", "1979-05-27 07:32:00", "1979-05-27", "07:32:00"],
);

const name = fc.oneof(bareName, basicString, literalString);

const { value } = fc.letrec<{ value: string }>((tie) => ({
  value: fc.oneof(
    { depthSize: "small", withCrossShrink: true },
    fc.oneof(basicString, literalString, multilineBasicString, multilineLiteralString, plain),
    fc
      .tuple(fc.array(tie("value"), { maxLength: 4 }), fc.constantFrom("", "\n", " # ], \" '\n"))
      .map(([items, gap]) => `[${gap}${items.map((item) => `${item}${gap},${gap}`).join("")}]`),
    fc
      .array(fc.tuple(name, tie("value")), { maxLength: 3 })
      .map((members) => `{ ${members.map(([n, v], i) => `k${i}.${n} = ${v}`).join(", ")} }`),
  ),
}));

const blank = fc.constantFrom("", " ", "\t", "  ");
const style = fc.record({
  indent: blank,
  around: blank,
  comment: fc.constantFrom("", "# = ] \"'"),
});
const pair = fc.record({ name, value, style });
const table = fc.record({
  isArray: fc.boolean(),
  name,
  style,
  pairs: fc.array(pair, { maxLength: 4 }),
});

type Style = { indent: string; around: string; comment: string };
type Pair = { name: string; value: string; style: Style };

/** Whole documents: keys, then tables and arrays of tables, with comments and either line end. */
export const documents = fc
  .record({
    pairs: fc.array(pair, { maxLength: 4 }),
    tables: fc.array(table, { maxLength: 4 }),
    lineEnd: fc.constantFrom("\n", "\r\n"),
  })
  .map(({ pairs, tables, lineEnd }) => {
    const lines = pairs.map(pairLine);
    for (const [index, { isArray, name, style, pairs }] of tables.entries()) {
      const key = dotted(`t${index}`, name, style);
      const header = isArray ? `[[${key}]]` : `[${key}]`;
      for (const line of isArray ? [header, header] : [header]) {
        lines.push(`${style.indent}${line} ${style.comment}`, "# between", ...pairs.map(pairLine));
      }
    }
    return lines.join("\n").replaceAll("\n", lineEnd);
  });

function pairLine({ name, value, style }: Pair, index: number): string {
  return `${style.indent}${dotted(`p${index}`, name, style)}= ${value} ${style.comment}`;
}

/** The number in front keeps arbitrary names apart. */
function dotted(numbered: string, name: string, { around }: Style): string {
  return `${around}${numbered}${around}.${around}${name}${around}`;
}

/** `text` as a basic string. */
export function basic(text: string): string {
  return JSON.stringify(text).replaceAll("\x7f", "\\u007F");
}
