/** Moves over the pieces of a valid TOML text (https://toml.io/en/v1.0.0) by position alone. */

const tab = 0x09;
const lineFeed = 0x0a;
const carriageReturn = 0x0d;
const space = 0x20;
const quotationMark = 0x22;
const numberSign = 0x23;
const apostrophe = 0x27;
const dot = 0x2e;
const openBracket = 0x5b;
const backslash = 0x5c;
const closeBracket = 0x5d;
const openBrace = 0x7b;
const closeBrace = 0x7d;

const shortEscapes: Readonly<Record<string, string>> = {
  b: "\b",
  t: "\t",
  n: "\n",
  f: "\f",
  r: "\r",
  e: "\x1b",
  '"': '"',
  "\\": "\\",
};

/** The position after the spaces and tabs that start at `position`. */
export function skipSpaces(text: string, position: number): number {
  let at = position;
  while (text.charCodeAt(at) === space || text.charCodeAt(at) === tab) at += 1;
  return at;
}

/** The position of the line end at or after `position`, or the end of the text. */
function lineEnd(text: string, position: number): number {
  const found = text.indexOf("\n", position);
  return found === -1 ? text.length : found;
}

/** The position of the next statement at or after `position`, past comments and empty lines. */
export function skipBlank(text: string, position: number): number {
  let at = position;
  for (;;) {
    const code = text.charCodeAt(at);
    if (code === numberSign) at = lineEnd(text, at);
    else if (isBlank(code)) at += 1;
    else return at;
  }
}

/** The position after the value that starts at `position`. */
export function skipValue(text: string, position: number): number {
  const code = text.charCodeAt(position);
  if (isQuote(code)) return skipString(text, position);
  if (code === openBracket || code === openBrace) return skipNested(text, position);
  return skipScalar(text, position);
}

/**
 * Reads the dotted key that starts at `position` and adds its names, unquoted and unescaped, to
 * `path`.
 * @returns the position after the last name
 * @throws SyntaxError if no key stands there
 */
export function readKey(text: string, position: number, path: string[]): number {
  let at = position;
  for (;;) {
    const end = skipName(text, at);
    path.push(nameOf(text.slice(at, end)));
    at = skipSpaces(text, end);
    if (text.charCodeAt(at) !== dot) return end;
    at = skipSpaces(text, at + 1);
  }
}

function skipName(text: string, position: number): number {
  if (isQuote(text.charCodeAt(position))) return skipString(text, position);
  let at = position;
  while (isBareKeyCharacter(text.charCodeAt(at))) at += 1;
  if (at === position) throw new SyntaxError("A key was expected");
  return at;
}

function nameOf(written: string): string {
  const quote = written.charCodeAt(0);
  if (!isQuote(quote)) return written;
  const inner = written.slice(1, -1);
  return quote === apostrophe || !inner.includes("\\") ? inner : resolveEscapes(inner);
}

function resolveEscapes(text: string): string {
  return text.replace(
    /\\(?:u([0-9A-Fa-f]{4})|U([0-9A-Fa-f]{8})|x([0-9A-Fa-f]{2})|(.))/g,
    (whole, four?: string, eight?: string, two?: string, letter?: string) => {
      const hexadecimal = four ?? eight ?? two;
      if (hexadecimal !== undefined) return String.fromCodePoint(Number.parseInt(hexadecimal, 16));
      return shortEscapes[letter ?? ""] ?? whole;
    },
  );
}

function skipString(text: string, position: number): number {
  const quote = text.charCodeAt(position);
  const isMultiline =
    text.charCodeAt(position + 1) === quote && text.charCodeAt(position + 2) === quote;
  const width = isMultiline ? 3 : 1;
  const close = (quote === apostrophe ? "'" : '"').repeat(width);
  const end = closingQuote(text, position + width, close, quote !== apostrophe) + width;
  return isMultiline ? skipExtraQuotes(text, end, quote) : end;
}

function closingQuote(text: string, from: number, close: string, escapes: boolean): number {
  let at = text.indexOf(close, from);
  while (escapes && at !== -1 && isEscaped(text, at, from)) at = text.indexOf(close, at + 1);
  return at === -1 ? text.length : at;
}

/** True after an odd number of backslashes, none of them before `from`. */
function isEscaped(text: string, position: number, from: number): boolean {
  let at = position;
  while (at > from && text.charCodeAt(at - 1) === backslash) at -= 1;
  return (position - at) % 2 === 1;
}

/** A multi-line string may end in one or two quotes of its own, right before the closing three. */
function skipExtraQuotes(text: string, position: number, quote: number): number {
  let at = position;
  while (at < position + 2 && text.charCodeAt(at) === quote) at += 1;
  return at;
}

function skipNested(text: string, position: number): number {
  let at = position;
  let depth = 0;
  while (at < text.length) {
    const code = text.charCodeAt(at);
    if (isQuote(code)) {
      at = skipString(text, at);
      continue;
    }
    if (code === numberSign) {
      at = lineEnd(text, at);
      continue;
    }
    if (code === openBracket || code === openBrace) depth += 1;
    else if (code === closeBracket || code === closeBrace) depth -= 1;
    at += 1;
    if (depth === 0) return at;
  }
  return text.length;
}

/** Numbers, booleans and dates run to the end of their line; a date may hold one space. */
function skipScalar(text: string, position: number): number {
  let end = position;
  for (let at = position; at < text.length; at += 1) {
    const code = text.charCodeAt(at);
    if (code === lineFeed || code === numberSign) break;
    if (!isBlank(code)) end = at + 1;
  }
  return end;
}

function isQuote(code: number): boolean {
  return code === quotationMark || code === apostrophe;
}

function isBlank(code: number): boolean {
  return code === space || code === tab || code === lineFeed || code === carriageReturn;
}

function isBareKeyCharacter(code: number): boolean {
  return (
    (code >= 0x61 && code <= 0x7a) ||
    (code >= 0x41 && code <= 0x5a) ||
    (code >= 0x30 && code <= 0x39) ||
    code === 0x5f ||
    code === 0x2d
  );
}
