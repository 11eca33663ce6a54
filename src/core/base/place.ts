/** A database, optionally with a table or a table pattern. */
export interface Place {
  readonly database: string;
  readonly table?: string | undefined;
}

/** `main`, `main.tickets`, or `'acme.shop'.tickets`, since a dot would begin the table's name. */
export function placeName(database: string, table?: string): string {
  const name = database.includes(".") ? `'${database}'` : database;
  return table === undefined ? name : `${name}.${table}`;
}

/** Reads what `placeName` writes, also with double quotes. Checks no name. */
export function splitPlace(text: string): Place {
  const [, , quoted, plain = "", table] =
    /^(?:(['"])(.*?)\1|([^.]*))(?:\.(.*))?$/s.exec(text) ?? [];
  return { database: quoted ?? plain, table };
}
