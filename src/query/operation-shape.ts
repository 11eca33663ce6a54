/** What an operation asks for, in words that hold no value: for the audit. */

import type { NamedColumn, OperationDraft, Position } from "./operation-draft.ts";

/** What stands at the end of a shape that is cut. */
const CUT = "...";
/** Bytes of a UTF-16 code unit in UTF-8, at most. */
const WIDEST = 3;

/** Writes the columns of each position once, in the order in which they come. */
class ShapeWriter {
  text = "";
  #position: Position | undefined;
  #first = "";
  /** What was written of the position; made with its second column. */
  #seen: Set<string> | undefined;

  add({ position, column, comparison }: NamedColumn): void {
    const name = column.toString();
    const word = comparison === undefined ? name : `${name} ${comparison}`;
    if (position !== this.#position) {
      this.end();
      this.text += `${this.text === "" ? "" : " "}${position}(${word}`;
      this.#position = position;
      this.#first = word;
      this.#seen = undefined;
    } else if (!this.#isRepeated(word)) this.text += `, ${word}`;
  }

  #isRepeated(word: string): boolean {
    this.#seen ??= new Set([this.#first]);
    if (this.#seen.has(word)) return true;
    this.#seen.add(word);
    return false;
  }

  end(): void {
    if (this.#position !== undefined) this.text += ")";
    this.#position = undefined;
  }
}

function cut(text: string, most: number): string {
  if (text.length * WIDEST <= most || Buffer.byteLength(text) <= most) return text;
  const kept = Buffer.from(text).toString("utf8", 0, most - CUT.length);
  return kept.replace(/\ufffd+$/, "") + CUT;
}

/** The shape of an operation, such as `columns(id, name) where(age >, name LIKE)`. */
export function shapeOf({ named = [], compared = [] }: OperationDraft, most: number): string {
  const writer = new ShapeWriter();
  for (const one of named) {
    // What is compared is told with its comparisons.
    if (one.position !== "where" && one.position !== "having") writer.add(one);
    if (writer.text.length > most) break;
  }
  for (const one of compared) {
    if (writer.text.length > most) break;
    writer.add(one);
  }
  writer.end();
  return cut(writer.text, most);
}
