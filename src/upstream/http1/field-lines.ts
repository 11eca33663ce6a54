const TAB = 0x09;
const DELETE = 0x7f;

/** Fields as they are sent, a line each; a list is several lines. */
export type RequestFields = Readonly<Record<string, string | readonly string[]>>;

/** True for a value without control characters (RFC 9110, section 5.5), in Latin-1. */
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

/** The lines of the fields (RFC 9110, section 5.5). @throws TypeError for a control character */
export function fieldLines(fields: RequestFields): string {
  let lines = "";
  for (const name in fields) {
    const value = fields[name];
    if (typeof value === "string") lines += fieldLine(name, value);
    else if (value !== undefined) for (const one of value) lines += fieldLine(name, one);
  }
  return lines;
}
