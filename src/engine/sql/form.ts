/** What a column takes, by its declared type, for messages. */

const forms: readonly (readonly [type: RegExp, form: string])[] = [
  [/\[\]$/, "an array"],
  [/^(?:tinyint\(1\)|bool)/, "true or false"],
  [/^(?:(?:tiny|small|medium|big)?int|(?:big|small)?serial|year)/, "a whole number"],
  [/^(?:float|double|real|numeric|decimal)/, "a number"],
  [/^date$/, "text such as 2026-01-31"],
  [/^(?:timestamp|datetime)/, "text such as 2026-01-31T13:45:00"],
  [/^time/, "text such as 13:45:00"],
  [/^uuid/, "text such as 5f3d3a1c-7a43-4f57-9a3c-0b9c3bd18f3f"],
  [/^json/, "any JSON"],
  [/^bytea|^bytes|blob|binary/, "bytes as base64 text"],
  [/char|text|^string|^enum|^set|^name$/, "text"],
];

/** `; allowed: a whole number` for the end of a message; nothing where the type does not tell. */
export function allowedForm(type: string): string {
  const folded = type.toLowerCase();
  const form = forms.find(([of]) => of.test(folded))?.[1];
  return form === undefined ? "" : `; allowed: ${form}`;
}

/** The same for what the column compares with: any number where it holds whole ones. */
export function comparableForm(type: string): string {
  return allowedForm(type).replace("a whole number", "a number");
}
