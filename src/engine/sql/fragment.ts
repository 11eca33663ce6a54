/** SQL that is put together from pieces, its names quoted and its values bound. */

/** A name of the schema, which is quoted. */
class Name {
  readonly name: string;

  constructor(name: string) {
    this.name = name;
  }
}

/** A piece of SQL: texts, and between each two of them a name, a value or another piece. */
export class Fragment {
  readonly texts: readonly string[];
  readonly parts: readonly unknown[];

  constructor(texts: readonly string[], parts: readonly unknown[]) {
    this.texts = texts;
    this.parts = parts;
  }
}

/** SQL as a driver takes it. */
export interface Compiled {
  readonly text: string;
  readonly values: readonly unknown[];
}

/** How a server writes SQL. */
export interface Notation {
  /** What stands around a name, and twice for one in it. */
  readonly quote: '"' | "`";
  /** What stands for a value by its place, from 1 on. */
  readonly placeholder: (place: number) => string;
}

/** A piece of SQL: whatever is put into it that is not a piece itself is a value. */
export const sql = Object.assign(
  (texts: TemplateStringsArray, ...parts: readonly unknown[]): Fragment =>
    new Fragment(texts, parts),
  {
    /** Names, with a dot between them. */
    id: (...names: readonly string[]): Fragment =>
      joined(
        names.map((name) => new Name(name)),
        ".",
      ),
    /** Pieces or values, with a separator between them. */
    join(parts: readonly unknown[], separator?: Fragment): Fragment {
      if (separator === undefined) return joined(parts, ", ");
      const [text = ""] = separator.texts;
      if (separator.parts.length > 0) throw new TypeError("A separator is text alone");
      return joined(parts, text);
    },
    /** A number or a string of our own, written out. */
    lit: (value: number | string): Fragment =>
      sql.raw(typeof value === "number" ? String(value) : `'${value.replaceAll("'", "''")}'`),
    /** Words of our own, or of the server. */
    raw: (text: string): Fragment => new Fragment([text], []),
  },
);

function joined(parts: readonly unknown[], separator: string): Fragment {
  const texts = new Array<string>(parts.length + 1).fill(separator);
  texts[0] = "";
  texts[parts.length] = "";
  return new Fragment(texts, parts);
}

/** Writes a piece as a server takes it. */
export function compileFragment(fragment: Fragment, { quote, placeholder }: Notation): Compiled {
  const values: unknown[] = [];
  const write = ({ texts, parts }: Fragment): string => {
    let text = texts[0] ?? "";
    for (const [index, part] of parts.entries()) {
      if (part instanceof Fragment) text += write(part);
      else if (part instanceof Name)
        text += quote + part.name.replaceAll(quote, quote + quote) + quote;
      else text += placeholder(values.push(part));
      text += texts[index + 1] ?? "";
    }
    return text;
  };
  return { text: write(fragment), values };
}

/** Like a pattern whose backslash is a backslash, where the server would take it as an escape. */
export function likeBackslash(column: Fragment, pattern: string): Fragment {
  return sql`${column} like ${pattern.replaceAll("\\", "\\\\")}`;
}
