/** A cell of CSV (RFC 4180) for a value's JSON text: what is in a string, and anything else as it is. */
export function csvCell(json: string): string {
  if (!json.startsWith('"')) return csvText(json);
  const text: string = json.includes("\\") ? JSON.parse(json) : json.slice(1, -1);
  // Null is an empty cell; the empty text is told from it.
  return text === "" ? '""' : csvText(text);
}

/** Text, quoted where that is needed. */
export function csvText(text: string): string {
  return /[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
}
