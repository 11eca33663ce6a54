import { rowComparisons } from "../src/access/grant.ts";
import { passwordHashForm } from "../src/access/password-hash.ts";
import {
  approvable,
  entryRoles,
  type TableName,
  tablePattern,
  type tables,
} from "../src/access/records.ts";
import { EVERY_DATABASE, externalUsername, username as ownUsername } from "../src/access/roles.ts";
import { attributeName } from "../src/access/row-filter.ts";
import type { Schema } from "../src/query/kind.ts";
import { columnNamePattern, plainNamePattern } from "../src/query/names.ts";

/** Every key that a table may have, each with its schema. */
type Properties = { readonly [T in TableName]: Record<(typeof tables)[T][number], Schema> };

const username = {
  type: "string",
  anyOf: [ownUsername, externalUsername].map(({ source }) => ({ type: "string", pattern: source })),
  description:
    "1 to 64 of letters, digits, '.', '_', '-', '@' (after `prefix:` for an external user).",
};

const literal = { type: ["string", "integer", "boolean"] };
const column = { type: "string", pattern: `^${columnNamePattern}$` };
const columns = listOf(column);

/** What entries and boundaries have alike. */
const limits = {
  max_rows: {
    type: "integer",
    minimum: 1,
    description: "Rows of an answer: a Select says a limit, and no higher one.",
  },
  max_changes: {
    type: "integer",
    minimum: 1,
    description: "Rows that one operation inserts, updates or deletes.",
  },
  require_approval: {
    ...listOf({ enum: approvable }),
    description: "Rights whose use somebody has to approve.",
  },
  approvers: {
    ...listOf(username),
    description: "Who approves; whoever may grant there, if left out.",
  },
};

function listOf(items: Schema): Schema {
  return { type: "array", items, minItems: 1, uniqueItems: true };
}

const properties: Properties = {
  users: {
    username,
    email: {
      type: "string",
      maxLength: 254,
      pattern: "^[^\\u0000-\\u001f\\u007f-\\u009f]+$",
      description: "1 to 254 printable characters.",
    },
    password_hash: {
      type: "string",
      pattern: passwordHashForm.source,
      description: "Made by `gatehouse hash-password`; without one there is no login.",
    },
    disabled: {
      type: "boolean",
      default: false,
      description: "No login, and no token of this user is accepted.",
    },
    tokens_valid_after: {
      type: "integer",
      minimum: 0,
      maximum: Number.MAX_SAFE_INTEGER,
      description: "Epoch seconds; a token that was issued then or before is not accepted.",
    },
    attributes: {
      type: "object",
      patternProperties: {
        [`^(?!username$)${attributeName}$`]: {
          oneOf: [
            literal,
            ...literal.type.map((type) => ({ type: "array", items: { type }, uniqueItems: false })),
          ],
        },
      },
      additionalProperties: false,
      description: "What row filters refer to by @name: text, whole numbers, booleans, or lists.",
    },
  },
  acl: {
    username,
    database: {
      type: "string",
      pattern: `^(?:\\${EVERY_DATABASE}|${plainNamePattern})$`,
      description: 'A database, or "*": every one that has no entry of its own.',
    },
    role: {
      type: "string",
      enum: entryRoles,
      description: "Widest first; None gives nothing, where a wider entry would.",
    },
    tables: {
      ...listOf({ type: "string", pattern: tablePattern.source }),
      description: "The entry is for these tables alone; * only at the end of a name.",
    },
    columns: { ...columns, description: "The only columns that may be named, in any position." },
    writable_columns: {
      ...columns,
      minItems: 0,
      description:
        "The only ones that set, add, values and update may name; as columns if left out.",
    },
    row_filter: {
      ...listOf({
        type: "object",
        properties: {
          column,
          cmp: { enum: rowComparisons },
          value: { oneOf: [literal, { type: "array", items: literal }] },
        },
        required: ["column", "cmp", "value"],
        additionalProperties: false,
      }),
      description:
        'What all rows fulfil; "@name" is an attribute of the caller, "@username" its name, "@@x" the text "@x".',
    },
    require_where: {
      ...columns,
      description: "Columns that the where of an Update or Delete pins by = or IN.",
    },
    ...limits,
    expires: {
      type: "string",
      format: "date-time",
      description: "The entry is over from then on.",
    },
  },
  boundaries: {
    via: { enum: ["mcp", "query"], description: "Where the queries come from that it is for." },
    client: { type: "string", description: "Only for this OAuth client." },
    username: { ...username, description: "Only for this user." },
    database: {
      type: "string",
      pattern: `^${plainNamePattern}$`,
      description: "Only on this database.",
    },
    role: { type: "string", enum: entryRoles, description: "What passes at most." },
    ...limits,
    rate_limit: {
      type: "string",
      pattern: "^[1-9][0-9]{0,8}/(s|min|hour|day)$",
      description: 'Requests of one user in a time, such as "60/min".',
    },
  },
};

/** What an entry may say beyond whose it is and where. */
export function entrySchemas(): Omit<Properties["acl"], "username" | "database"> {
  const { username: _, database: __, ...entry } = properties.acl;
  return entry;
}

const required: { readonly [T in TableName]: readonly (typeof tables)[T][number][] } = {
  users: ["username"],
  acl: ["username", "database", "role"],
  boundaries: ["via"],
};

function tableOf(name: TableName, description: string): object {
  return {
    type: "array",
    description,
    items: {
      type: "object",
      properties: properties[name],
      required: required[name],
      additionalProperties: false,
    },
  };
}

/** The access-control file as JSON Schema (Draft 4), out of the rules that it is read by. */
export function accessSchema(): object {
  return {
    $schema: "http://json-schema.org/draft-04/schema#",
    title: "access_control.toml of Gatehouse",
    type: "object",
    properties: {
      users: tableOf("users", "Who there is."),
      acl: tableOf("acl", "Who may do what on which database, and on which of its tables."),
      boundaries: tableOf(
        "boundaries",
        "What may pass at most, whatever the entries of a caller say.",
      ),
    },
    additionalProperties: false,
  };
}
