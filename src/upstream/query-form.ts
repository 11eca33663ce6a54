import type { Access, Query } from "../query/query.ts";

/** Turns `CreateTable` into `create_table`. */
function snakeCase(operation: string): string {
  return operation.replace(/(?<!^)[A-Z]/g, (letter) => `_${letter}`).toLowerCase();
}

/** `{"op":"select", ...fields}` with the client's own bytes for the fields. */
function operation(body: Buffer, access: Access): Buffer[] {
  const head = Buffer.from(`{"op":"${snakeCase(access.operation)}",`);
  return [head, body.subarray(access.start + 1, access.end)];
}

/**
 * Rewrites the outer shape of a query for engines that take the operation as a field. A Batch
 * becomes `["batch", operation, ...]`.
 */
export function toOpForm(body: Buffer, query: Query): Buffer {
  if (!query.batch)
    return Buffer.concat(query.accesses.flatMap((access) => operation(body, access)));
  const comma = Buffer.from(",");
  const elements = query.accesses.flatMap((access) => [comma, ...operation(body, access)]);
  return Buffer.concat([Buffer.from('["batch"'), ...elements, Buffer.from("]")]);
}

/** The query in the upstream's form: unchanged, or with the operation as a field. */
export function inForm(form: "keyed" | "op", body: Buffer, query: Query): Buffer {
  return form === "keyed" ? body : toOpForm(body, query);
}

const TAB = 0x09;
const DELETE = 0x7f;

/** A list is sent as several lines. */
export type RequestFields = Readonly<Record<string, string | readonly string[]>>;

/** True for Latin-1 text without control characters (RFC 9110, section 5.5). */
function isFieldValue(text: string): boolean {
  for (let at = 0; at < text.length; at++) {
    const code = text.charCodeAt(at);
    if ((code < 0x20 && code !== TAB) || code === DELETE || code > 0xff) return false;
  }
  return true;
}

function fieldLine(name: string, value: string): string {
  if (!isFieldValue(value)) throw new TypeError(`the field ${name} cannot be sent as it is`);
  return `${name}: ${value}\r\n`;
}

/**
 * Serializes header fields (RFC 9110, section 5.5).
 *
 * @throws TypeError for a control character
 */
export function fieldLines(fields: RequestFields): string {
  let lines = "";
  for (const name in fields) {
    const value = fields[name];
    if (typeof value === "string") lines += fieldLine(name, value);
    else if (value !== undefined) for (const one of value) lines += fieldLine(name, one);
  }
  return lines;
}
