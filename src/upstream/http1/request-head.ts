const forbidden = /[^\t\x20-\x7e\x80-\xff]/;

/** Fields as they are sent, a line each; a list is several lines. */
export type RequestFields = Readonly<Record<string, string | readonly string[]>>;

function fieldLine(name: string, value: string): string {
  if (forbidden.test(value)) throw new TypeError(`the field ${name} cannot be sent as it is`);
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
