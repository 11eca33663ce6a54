/** The ways in which a row breaks a rule; names are the schema's, never values. */
export const violations = {
  required: (place: string, column: string) => `${place} takes no null in column "${column}"`,
  reference: (place: string, named: string) =>
    `${place} and another one would no longer fit together${named}`,
  unique: (place: string, named: string) =>
    `${place} has such a value already where it may stand once${named}`,
  other: (place: string, named: string) => `${place} does not allow such a row${named}`,
};
