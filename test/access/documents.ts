/** Arbitrary access files, written as oddly as an operator may write them. */
import fc from "fast-check";
import { readHolder, writtenHolder } from "../../src/core/access/grant.ts";
import { type Role, roles } from "../../src/core/access/roles.ts";
import { hashWith } from "./kit.ts";

export interface UserFields {
  email?: string | undefined;
  passwordHash?: string | undefined;
  disabled?: boolean;
  tokensValidAfter?: number;
  sameAs?: string | undefined;
}

export interface Model {
  users: Map<string, UserFields>;
  /** The members by name. */
  groups: Map<string, readonly string[]>;
  grants: Map<string, Role>;
}

interface Document {
  text: string;
  model: Model;
}

/** A user that no test removes, so that the file never becomes empty. */
const KEEPER = "keeper";

const hostileText = fc
  .array(
    fc.oneof(
      fc.constantFrom(
        '"',
        "'",
        "\\",
        "]]",
        "[[users]]",
        "#",
        '"""',
        "'''",
        "=",
        " ",
        "\\u0041",
        "{",
      ),
      fc.string({ unit: "grapheme", maxLength: 4 }),
    ),
    { maxLength: 6 },
  )
  .map((parts) => parts.join(""));

/** Emails that the file may hold, full of what means something in TOML. */
const hostileEmail = hostileText
  .map((text) => `x${text.replace(/\p{Cc}/gu, "")}`)
  .filter((text) => text.isWellFormed() && text.length <= 254);

const hash = fc.constantFrom(...["m=64,t=1,p=1", "p=1,t=2,m=128", "m=8,p=1,t=64"].map(hashWith));
export const role = fc.constantFrom(...roles);
export const database = fc.constantFrom("main", "logs", "a-b_c", "acme.shop", "Z", "*");

export const userFields: fc.Arbitrary<UserFields> = fc.record(
  {
    email: hostileEmail,
    passwordHash: hash,
    disabled: fc.boolean(),
    tokensValidAfter: fc.nat({ max: 2_000_000_000 }),
    sameAs: fc.constantFrom("another", "p:Zoë #1", "p:x = 'y'"),
  },
  { requiredKeys: [] },
);

export const members = fc.uniqueArray(fc.constantFrom("alice", "bob", "p:Zoë #1", "p:x = 'y'"));

/** How one statement is written: numbers that the writer takes choices by. */
const style = fc.record({
  indent: fc.constantFrom("", "", "  ", "\t"),
  key: fc.nat({ max: 3 }),
  value: fc.nat({ max: 4 }),
  gap: fc.constantFrom("", " ", "  ", "\t"),
  comment: fc.nat({ max: 3 }),
  before: fc.constantFrom<string[]>([], [], [], [""], ["#"], ["", "#", " \t"]),
});
type Style = typeof style extends fc.Arbitrary<infer S> ? S : never;
const styles = fc.array(style, { minLength: 8, maxLength: 24 });

function basic(text: string): string {
  return JSON.stringify(text).replaceAll("\x7f", "\\u007f");
}

function writtenString(text: string, choice: number): string {
  const isLiteral = !/['\p{Cc}]/u.test(text);
  const isRaw = !/["\\\p{Cc}]/u.test(text);
  if (choice === 1 && isLiteral) return `'${text}'`;
  if (choice === 2 && isLiteral) return `'''\n${text}'''`;
  if (choice === 3 && isRaw) return `"""\n${text}"""`;
  // The backslash removes the line end and the spaces after it, also those of the text.
  const isFlush = text.trimStart() === text;
  if (choice === 4 && isRaw && isFlush) return `"""\\\n    ${text}"""`;
  return basic(text);
}

type Value = string | number | boolean | readonly string[];

function writtenList(texts: readonly string[], choice: number): string {
  const [open, comma, close] = [
    ["[", ", ", "]"] as const,
    ["[ ", ",", " ]"] as const,
    ["[\n  ", ",\n  ", "\n]"] as const,
  ][choice % 3] ?? ["[", ",", "]"];
  const last = texts.length > 0 && choice > 2 ? "," : "";
  return `${open}${texts.map((text) => writtenString(text, choice % 2)).join(comma)}${last}${close}`;
}

function writtenValue(value: Value, choice: number): string {
  if (typeof value === "object") return writtenList(value, choice);
  if (typeof value === "number") return choice === 1 ? `+${value}` : String(value);
  return typeof value === "string" ? writtenString(value, choice) : String(value);
}

function writtenKey(key: string, choice: number): string {
  const escaped = `\\u${key.charCodeAt(0).toString(16).padStart(4, "0")}${key.slice(1)}`;
  return [key, `"${key}"`, `'${key}'`, `"${escaped}"`][choice] ?? key;
}

/** Writes statements in the styles given, each comment with a number of its own. */
class Writer {
  readonly lines: string[] = [];
  readonly #styles: readonly Style[];
  #written = 0;
  #comments = 0;

  constructor(styles: readonly Style[]) {
    this.#styles = styles;
  }

  #comment(): string {
    this.#comments += 1;
    return `# comment-${this.#comments}; [[users]] = "'`;
  }

  statement(write: (style: Style) => string): void {
    const style = this.#styles[this.#written % this.#styles.length];
    this.#written += 1;
    if (style === undefined) return;
    for (const line of style.before) this.lines.push(line === "#" ? this.#comment() : line);
    const comment = style.comment === 0 ? `${style.gap}${this.#comment()}` : style.gap;
    this.lines.push(style.indent + write(style) + comment);
  }

  table(name: string, fields: Record<string, Value | undefined>): void {
    this.statement(({ key, gap }) => `[[${gap}${writtenKey(name, key)}${gap}]]`);
    for (const [key, value] of Object.entries(fields)) {
      if (value === undefined) continue;
      this.statement(
        (style) =>
          `${writtenKey(key, style.key)}${style.gap}=${style.gap}${writtenValue(value, style.value)}`,
      );
    }
  }
}

function writtenFields(username: string, fields: UserFields) {
  const { email, passwordHash, disabled, tokensValidAfter, sameAs } = fields;
  return {
    email,
    username,
    disabled,
    password_hash: passwordHash,
    tokens_valid_after: tokensValidAfter,
    same_as: sameAs,
  };
}

const accounts = fc.uniqueArray(
  fc.tuple(fc.constantFrom("alice", "bob", "c.d@e", "Dora"), userFields),
  { selector: ([name]) => name, maxLength: 4 },
);
const entries = fc.uniqueArray(
  fc.tuple(
    fc.constantFrom("alice", "bob", "c.d@e", "p:x", "ghost", "group:team", "group:p:r d"),
    database,
    role,
  ),
  { selector: ([name, on]) => `${name} ${on}`, maxLength: 6 },
);

const memberships = fc.uniqueArray(fc.tuple(fc.constantFrom("team", "leads"), members), {
  selector: ([name]) => name,
});

export const documents: fc.Arbitrary<Document> = fc
  .record({
    accounts,
    memberships,
    entries,
    styles,
    order: fc.infiniteStream(fc.boolean()),
    lineEnd: fc.constantFrom("\n", "\r\n"),
    ending: fc.constantFrom("", "\n", "\n\n# comment-last", "\n# comment-last\n"),
  })
  .map(({ accounts, memberships, entries, styles, order, lineEnd, ending }) => {
    const users = new Map<string, UserFields>([[KEEPER, {}], ...accounts]);
    const writer = new Writer(styles);
    const tables = Array.from(
      users,
      ([name, fields]) =>
        () =>
          writer.table("users", writtenFields(name, fields)),
    );
    const groups = memberships.map(
      ([name, members]) =>
        () =>
          writer.table("groups", { name, members }),
    );
    const others = entries.map(
      ([username, database, role]) =>
        () =>
          writer.table("acl", { ...writtenHolder(readHolder(username)), database, role }),
    );
    const acl = order.next().value ? [...groups, ...others] : [...others, ...groups];
    while (tables.length > 0 || acl.length > 0) {
      const first = order.next().value ? [tables, acl] : [acl, tables];
      for (const queue of first) queue.shift()?.();
    }
    const grants = new Map(entries.map(([name, on, role]) => [`${name} ${on}`, role]));
    const text = (writer.lines.join("\n") + ending).replaceAll("\n", lineEnd);
    return { text, model: { users, groups: new Map(memberships), grants } };
  });
