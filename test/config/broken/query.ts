import { type Broken, element } from "./file.ts";

const fieldName = "1 to 63 ASCII letters, digits and _, not a name of the query grammar";
const operationName = "a letter and up to 62 letters and digits, not a name of the query grammar";

/** What `[query]` refuses. */
export const query: Broken[] = [
  {
    text: '[query]\nlevel = "half"\n',
    problem: 'gateway.toml:2: query.level: found "half"; allowed: "core", "full"',
  },
  ...element("query", "extra_fields", "hint", fieldName, [
    '"database"',
    '"Order_By"',
    '"orderby"',
    '"op"',
    '"Select"',
    '"a-b"',
    '""',
    '"__proto__"',
  ]),
  {
    text: '[query]\nextra_fields = ["hint", "HINT"]\n',
    problem:
      'gateway.toml:2: query.extra_fields[1]: found "HINT"; allowed: each name once, and hint is already there',
  },
  ...["Select", "Batch", "batch", "op", "1st", "constructor", "With_Line"].map((name) => ({
    text: `[query.operations]\nTruncate = "DELETE"\n${name} = "SELECT"\n`,
    problem: `gateway.toml:3: query.operations.${name}: found ${name}; allowed: ${operationName}`,
  })),
  {
    text: '[query.operations]\nTruncate = "DELETE"\ntruncate = "DROP"\n',
    problem:
      'gateway.toml:3: query.operations.truncate: found "DROP"; allowed: each name once, and Truncate is already there',
  },
  {
    text: '[query]\noperations = { Truncate = "GRANT" }\n',
    problem:
      'gateway.toml:2: query.operations.Truncate: found "GRANT"; allowed: "SELECT", "INSERT", "UPDATE", "DELETE", "CREATE", "DROP"',
  },
];
