import type { CellValue } from "../../query/operation-types.ts";
import { ExactNumber } from "../exact-number.ts";

/** A cell's value as JSON text without white space, its numbers exact. */
export function cellText(value: CellValue): string {
  if (typeof value === "bigint") return value.toString();
  if (value instanceof ExactNumber) return value.source;
  if (Array.isArray(value)) return `[${value.map(cellText).join(",")}]`;
  if (typeof value === "object" && value !== null) {
    const members = Object.entries(value).map(
      ([key, member]) => `${JSON.stringify(key)}:${cellText(member)}`,
    );
    return `{${members.join(",")}}`;
  }
  return JSON.stringify(value);
}

/** JSON text without the white space between its tokens. */
export function withoutSpace(json: string): string {
  return json.replace(/("(?:[^"\\]|\\.)*")|\s+/g, "$1");
}
