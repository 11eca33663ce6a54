/** Limits for the callers of a measurement: columns, and a row filter. */
export const columns = 'tables = ["users"]\ncolumns = ["id", "name", "team"]';
export const rowFilter = 'row_filter = [{ column = "team", cmp = "=", value = "blue" }]';

/** Adds these keys to every entry on the queried database. */
export function withKeys(keys: string): (text: string) => string {
  return (text) =>
    text.replaceAll(/database = "main"\nrole = "ReadWrite"\n/g, (entry) => `${entry}${keys}\n`);
}
