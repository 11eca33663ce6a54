import type { CellValue } from "../../query/operation-types.ts";
import type { Codec } from "./codec.ts";

/** Arrays, of any depth, of what `element` takes; null stands for no element. */
export function arraysOf(element: Codec): Codec {
  return {
    write: (value) => (Array.isArray(value) ? writeArray(element, value) : undefined),
    read: (text) => readArray(element, text),
  };
}

function writeArray(element: Codec, values: readonly CellValue[]): string | undefined {
  const parts: string[] = [];
  for (const value of values) {
    const part = writeElement(element, value);
    if (part === undefined) return undefined;
    parts.push(part);
  }
  return `{${parts.join(",")}}`;
}

function writeElement(element: Codec, value: CellValue): string | undefined {
  if (value === null) return "NULL";
  if (Array.isArray(value)) return writeArray(element, value);
  const text = element.write(value);
  return text === undefined ? undefined : `"${text.replace(/["\\]/g, "\\$&")}"`;
}

/** A quoted element, a bare one, or a sign of the structure. */
const token = /"((?:[^"\\]|\\.)*)"|[^{},"]+|[{},]/gs;

/** Reads `{1,NULL,"a b"}`, which bounds may stand before: `[0:2]={...}`. */
function readArray(element: Codec, text: string): string {
  const start = text.startsWith("[") ? text.indexOf("=") + 1 : 0;
  let json = "";
  for (const [sign, quoted] of text.slice(start).matchAll(token)) {
    if (quoted !== undefined) json += element.read(quoted.replace(/\\(.)/gs, "$1"));
    else if (sign === "{") json += "[";
    else if (sign === "}") json += "]";
    else if (sign === ",") json += ",";
    else json += sign === "NULL" ? "null" : element.read(sign);
  }
  return json;
}
