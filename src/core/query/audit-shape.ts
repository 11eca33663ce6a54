import type { OperationNode, Position } from "./node.ts";

const CUT = "...";
/** Maximum UTF-8 bytes of a UTF-16 code unit. */
const MOST_BYTES_PER_UNIT = 3;

class ShapeWriter {
  text = "";
  #position: Position | undefined;
  #first = "";
  /** Columns already written for the position. Created for its second column. */
  #seen: Set<string> | undefined;

  add(position: Position, word: string): void {
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

/**
 * The columns of an operation by position, in order, with their comparisons, such as `columns(id,
 * name) where(age >, name LIKE)`. Never contains a value.
 *
 * @param most maximum bytes, at least three. A shape that is cut ends with `...`
 */
export function shapeOf(node: OperationNode, most: number): string {
  const text = writeShape(node, most);
  if (text.length * MOST_BYTES_PER_UNIT <= most || Buffer.byteLength(text) <= most) return text;
  const kept = Buffer.from(text).toString("utf8", 0, most - CUT.length);
  return kept.replace(/\ufffd+$/, "") + CUT;
}

function writeShape({ uses, nested, outer }: OperationNode, most: number): string {
  const writer = new ShapeWriter();
  for (const { position, column } of uses) {
    // Compared columns are written with their comparisons.
    if (position !== "where" && position !== "having") writer.add(position, column);
    if (writer.text.length > most) break;
  }
  for (const { position, column, comparison } of uses) {
    if (writer.text.length > most) break;
    if (comparison !== undefined) writer.add(position, `${column} ${comparison}`);
  }
  writer.end();
  if (outer !== undefined) return writer.text;
  for (const inner of nested) {
    if (writer.text.length > most) break;
    writer.text += ` ${inner.nesting} ${inner.tables.join(", ")}[${writeShape(inner, most)}]`;
  }
  return writer.text;
}
