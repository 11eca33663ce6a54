/** Character sets of one byte each, with the name of the same encoding in JavaScript. */
const encodings: Readonly<Record<string, string>> = {
  ...{ latin1: "windows-1252", latin2: "latin2", latin5: "latin5", latin7: "iso-8859-13" },
  ...{ cp1250: "cp1250", cp1251: "cp1251", cp1256: "cp1256", cp1257: "cp1257", cp866: "cp866" },
  ...{ greek: "greek", hebrew: "hebrew", koi8r: "koi8-r", koi8u: "koi8-u" },
  ...{ tis620: "tis-620", macroman: "macintosh" },
};

/** Sets that hold characters beyond U+FFFF. */
const whole = new Set(["utf8mb4", "utf16", "utf16le", "utf32", "gb18030"]);

const known = new Map<string, ReadonlySet<string>>();

function charactersOf(encoding: string): ReadonlySet<string> {
  const bytes = Uint8Array.from({ length: 256 }, (_, byte) => byte);
  const characters = known.get(encoding) ?? new Set(new TextDecoder(encoding).decode(bytes));
  known.set(encoding, characters);
  return characters;
}

/** Finds the texts with a character that a column cannot hold. Undefined if it holds all. */
export function lackingIn(set: string): ((text: string) => boolean) | undefined {
  if (whole.has(set)) return undefined;
  if (set === "ascii") return (text) => /[^\0-\x7f]/.test(text);
  const encoding = encodings[set];
  if (encoding === undefined) return (text) => /[\u{10000}-\u{10ffff}]/u.test(text);
  return (text) => !new Set(text).isSubsetOf(charactersOf(encoding));
}
