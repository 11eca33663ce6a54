/** How a database writes names and values. */
export interface Notation {
  /** What stands around a name, and is written twice within one. */
  readonly quote: '"' | "`";
  /** True where a value is its number, `$1`; else each is `?`. */
  readonly numbersValues: boolean;
}

/** What one database is told: the text, and the values that are bound to it in their order. */
class Statement {
  text = "";
  readonly values: unknown[] = [];
  readonly notation: Notation;

  constructor(notation: Notation) {
    this.notation = notation;
  }

  bind(value: unknown): void {
    this.values.push(value);
    this.text += this.notation.numbersValues ? `$${this.values.length}` : "?";
  }
}

/** A piece of SQL: words as they are, and between each two of them another piece, or a value that is bound. */
export class Fragment {
  readonly #words: readonly string[];
  readonly #parts: readonly unknown[];

  constructor(words: readonly string[], parts: readonly unknown[]) {
    this.#words = words;
    this.#parts = parts;
  }

  /** Says it in one database's SQL. */
  compile(notation: Notation): { readonly text: string; readonly values: readonly unknown[] } {
    const statement = new Statement(notation);
    this.write(statement);
    return statement;
  }

  protected write(to: Statement): void {
    const words = this.#words;
    const parts = this.#parts;
    to.text += words[0] ?? "";
    for (let at = 0; at < parts.length; at += 1) {
      const part = parts[at];
      if (part instanceof Fragment) part.write(to);
      else to.bind(part);
      to.text += words[at + 1] ?? "";
    }
  }
}

/** A name, as `schema.table` if there are two, which is quoted once. */
class Name extends Fragment {
  readonly #names: readonly string[];
  #quoted: { readonly quote: string; readonly text: string } | undefined;

  constructor(names: readonly string[]) {
    super([], []);
    this.#names = names;
  }

  protected override write(to: Statement): void {
    const { quote } = to.notation;
    if (this.#quoted?.quote !== quote) {
      const parts = this.#names.map(
        (name) => quote + name.replaceAll(quote, quote + quote) + quote,
      );
      this.#quoted = { quote, text: parts.join(".") };
    }
    to.text += this.#quoted.text;
  }
}

/**
 * Makes a piece of SQL: what is put between the words and is no piece of SQL itself is bound as a value,
 * and so never read as SQL.
 */
export function sql(words: readonly string[], ...parts: readonly unknown[]): Fragment {
  return new Fragment(words, parts);
}

/** A name, quoted, and led by those of what it is in. */
sql.id = (...names: readonly string[]): Fragment => new Name(names);

/** Words of our own or of the server, as they are. */
sql.raw = (words: string): Fragment => new Fragment([words], []);

/** Pieces and values one behind the other. */
sql.join = (parts: readonly unknown[], separator = ", "): Fragment =>
  new Fragment(["", ...Array(Math.max(0, parts.length - 1)).fill(separator), ""], parts);

/** Like a pattern whose backslash is a backslash, where the server would take it as an escape. */
export function likeBackslash(column: Fragment, pattern: string): Fragment {
  return sql`${column} like ${pattern.replaceAll("\\", "\\\\")}`;
}
