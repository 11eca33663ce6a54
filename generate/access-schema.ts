import { attributeName } from "../src/core/access/grant.ts";
import { passwordHashForm } from "../src/core/access/password-hash.ts";
import { approvable, entryRoles, type TableName, type tables } from "../src/core/access/records.ts";
import {
  EVERY_DATABASE,
  externalGroup,
  externalName,
  username as ownUsername,
} from "../src/core/access/roles.ts";
import type { Schema } from "../src/core/query/kind.ts";
import { rowComparisons } from "../src/core/query/limits.ts";
import {
  columnNamePattern,
  databasePattern,
  plainNamePattern,
  tablePattern,
  wholePlainName,
} from "../src/core/query/names.ts";

type Properties = { readonly [T in TableName]: Record<(typeof tables)[T][number], Schema> };

const username = {
  type: "string",
  anyOf: patterns(ownUsername, externalName),
  description:
    "1 to 64 of letters, digits, '.', '_', '-', '@'; or an external user, `<prefix>:<name>`.",
};

const group = {
  type: "string",
  anyOf: patterns(wholePlainName, externalGroup),
  description: "A local group, or a group of an issuer, `<prefix>:<group>`.",
};

function patterns(...expressions: readonly RegExp[]): object[] {
  return expressions.map(({ source }) => ({ type: "string", pattern: source }));
}

const literal = { type: ["string", "integer", "boolean"] };
const column = { type: "string", pattern: `^${columnNamePattern}$` };
const columns = listOf(column);

/** Keys of both entries and boundaries. */
const limits = {
  max_rows: {
    type: "integer",
    minimum: 1,
    description: "Most rows in a response; a Select needs a limit that is not higher.",
  },
  max_changes: {
    type: "integer",
    minimum: 1,
    description: "Most rows that one operation inserts, updates or deletes.",
  },
  require_approval: {
    ...listOf({ enum: approvable }),
    description: "Rights whose use needs approval.",
  },
  approvers: {
    ...listOf({
      anyOf: [
        username,
        {
          type: "string",
          pattern: `^group:(?:${plainNamePattern}|${externalGroup.source.slice(1, -1)})$`,
        },
      ],
    }),
    description:
      "Users who may approve, and groups as `group:<name>`; by default, users who may grant here.",
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
      description: "Created by `gatehouse hash-password`; without it, the user cannot log in.",
    },
    disabled: {
      type: "boolean",
      default: false,
      description: "If true, logins and tokens of this user are refused.",
    },
    tokens_valid_after: {
      type: "integer",
      minimum: 0,
      maximum: 99_999_999_999,
      description: "Epoch seconds; tokens issued at this time or earlier are refused.",
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
      description:
        "Values for row filters, which refer to them by @name: text, whole numbers, booleans, or lists.",
    },
    same_as: {
      ...username,
      description: "Another name of the same person. Approvals count both names as one.",
    },
  },
  groups: {
    name: { type: "string", pattern: wholePlainName.source, description: "The group's name." },
    members: {
      type: "array",
      items: username,
      uniqueItems: true,
      description: "The users in the group.",
    },
  },
  acl: {
    username,
    group,
    database: {
      type: "string",
      pattern: `^(?:\\${EVERY_DATABASE}|${databasePattern})$`,
      description: 'A database, or "*" for every database without an entry of its own.',
    },
    role: {
      type: "string",
      enum: entryRoles,
      description: "Widest first; None denies what a wider entry would allow.",
    },
    tables: {
      ...listOf({ type: "string", pattern: tablePattern.source }),
      description: "The entry covers only these tables; * is allowed only at the end of a name.",
    },
    columns: { ...columns, description: "Only these columns may be named, in any position." },
    writable_columns: {
      ...columns,
      minItems: 0,
      description:
        "Only these columns may be named by set, add, values and update; by default, those of columns.",
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
        'Conditions for all rows; "@name" is an attribute of the caller, "@username" its name, "@@x" the text "@x".',
    },
    require_where: {
      ...columns,
      description: "Columns that the where of an Update or Delete must compare with = or IN.",
    },
    ...limits,
    expires: {
      type: "string",
      format: "date-time",
      description: "The entry ends at this time.",
    },
  },
  boundaries: {
    via: { enum: ["mcp", "query"], description: "Applies to queries through this entry point." },
    client: { type: "string", description: "Only for this OAuth client." },
    username: { ...username, description: "Only for this user." },
    group: { ...group, description: "Only for the members of this group." },
    database: {
      type: "string",
      pattern: `^${databasePattern}$`,
      description: "Only on this database.",
    },
    role: { type: "string", enum: entryRoles, description: "The widest role that applies." },
    ...limits,
    rate_limit: {
      type: "string",
      pattern: "^[1-9][0-9]{0,8}/(s|min|hour|day)$",
      description: 'Most requests of one user in a period, such as "60/min".',
    },
  },
};

/** The keys of an entry except user, group and database. */
export function entrySchemas(): Omit<Properties["acl"], "username" | "group" | "database"> {
  const { username: _, group: __, database: ___, ...entry } = properties.acl;
  return entry;
}

const required: { readonly [T in TableName]: readonly (typeof tables)[T][number][] } = {
  users: ["username"],
  groups: ["name", "members"],
  acl: ["database", "role"],
  boundaries: ["via"],
};

function tableOf(name: TableName, description: string, rules: object = {}): object {
  return {
    type: "array",
    description,
    items: {
      type: "object",
      properties: properties[name],
      required: required[name],
      additionalProperties: false,
      ...rules,
    },
  };
}

/** The access file as JSON Schema (Draft 4). */
export function accessSchema(): object {
  return {
    $schema: "http://json-schema.org/draft-04/schema#",
    title: "access_control.toml of Gatehouse",
    type: "object",
    properties: {
      users: tableOf("users", "Users."),
      groups: tableOf("groups", "Local groups."),
      acl: tableOf(
        "acl",
        "Entries: the role of a user or a group on a database or on some of its tables.",
        { oneOf: [{ required: ["username"] }, { required: ["group"] }] },
      ),
      boundaries: tableOf("boundaries", "Limits that apply in addition to the caller's entries.", {
        not: { required: ["username", "group"] },
      }),
    },
    additionalProperties: false,
  };
}
