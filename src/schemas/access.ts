import { passwordHashForm } from "../access/password-hash.ts";
import type { TableName, tables } from "../access/records.ts";
import { externalUsername, username as ownUsername } from "../access/records.ts";
import { EVERY_DATABASE, roles } from "../access/roles.ts";
import { plainNamePattern } from "../query/names.ts";

/** Every key that a table may have, each with its schema. */
type Properties = { readonly [T in TableName]: Record<(typeof tables)[T][number], object> };

const username = {
  type: "string",
  anyOf: [{ pattern: ownUsername.source }, { pattern: externalUsername.source }],
  description:
    "1 to 64 of letters, digits, '.', '_', '-', '@' (after `prefix:` for an external user).",
};

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
  },
  acl: {
    username,
    database: {
      type: "string",
      pattern: `^(?:\\${EVERY_DATABASE}|${plainNamePattern})$`,
      description: 'A database, or "*": every one that has no entry of its own.',
    },
    role: { type: "string", enum: roles, description: "Widest first." },
  },
};

const required: { readonly [T in TableName]: readonly (typeof tables)[T][number][] } = {
  users: ["username"],
  acl: ["username", "database", "role"],
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
      acl: tableOf("acl", "Who may do what: one role for a user on a database."),
    },
    additionalProperties: false,
  };
}
