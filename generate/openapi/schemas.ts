import { externalGroup, externalName, roles } from "../../src/core/access/roles.ts";
import { batchKey } from "../../src/core/query/grammar.ts";
import type { Schema } from "../../src/core/query/kind.ts";
import { databasePattern, tablePattern, wholePlainName } from "../../src/core/query/names.ts";
import { definitions } from "../../src/core/query/operations.ts";
import { permissionClasses } from "../../src/core/query/permissions.ts";
import { entrySchemas } from "../access-schema.ts";

/** JSON Schemas of bodies, except those of queries. */

export const schemaPrefix = "#/components/schemas/";

export function ref(name: string): Schema {
  return { $ref: schemaPrefix + name };
}

/** An object with only these fields. A `?` after a name makes it optional. */
export function object(fields: Readonly<Record<string, Schema>>): Schema {
  const names = Object.keys(fields);
  const properties = Object.fromEntries(
    names.map((name) => [name.replace("?", ""), fields[name] ?? {}]),
  );
  const required = names.filter((name) => !name.endsWith("?"));
  return {
    type: "object",
    properties,
    ...(required.length === 0 ? {} : { required }),
    additionalProperties: false,
  };
}

export function success(fields: Readonly<Record<string, Schema>> = {}): Schema {
  return object({ status: { const: "success" }, ...fields });
}

export function listOf(items: Schema): Schema {
  return { type: "array", items };
}

const text: Schema = { type: "string" };
const jsonrpc: Schema = { const: "2.0" };
const id: Schema = { type: ["string", "integer"] };
const anyObject: Schema = { type: "object", additionalProperties: true };
const username = "(?!\\.{1,2}$)[A-Za-z0-9._@-]{1,64}";
const { role, tables, ...limits } = entrySchemas();
const optional = Object.fromEntries(Object.entries(limits).map(([key, is]) => [`${key}?`, is]));
const grant = { database: ref("DatabaseOrEvery"), role, "tables?": tables, ...optional };
const { "approvers?": _, ...effectiveLimits } = optional;
const freshness: Schema = { enum: ["fresh", "stale"] };

export const readiness = {
  upstream: { enum: ["up", "down"] },
  access_file: freshness,
  revocations: freshness,
  keys: freshness,
  access_version: text,
  version: text,
  "upstream_version?": { type: "string", description: "Only with `upstream.preset`." },
  "issuers?": {
    type: "object",
    description: "External issuers by prefix.",
    additionalProperties: { enum: ["ok", "unreachable", "unused"] },
  },
  "store?": { enum: ["reached", "unreachable"], description: "Only with `[store]`." },
  "store_version?": {
    type: "integer",
    description: "The store version that this replica has applied.",
  },
  "store_lag?": {
    type: "integer",
    description: "Versions that this replica was behind at the last poll.",
  },
  "lease_age?": {
    type: "number",
    description: "Seconds since the start of the last successful poll.",
  },
};

const count: Schema = { type: "integer", minimum: 0 };

export const refusalFields = {
  status: { const: "error" },
  message: { type: "string", description: "For people." },
  code: { type: "string", description: "Stable; programs branch on it." },
  "element?": {
    type: "integer",
    description: "Index of the Batch element that is denied or not as expected, from 0.",
  },
  "reason?": { type: "string", description: "The code for that element." },
  request_id: { type: "string", description: "As in `X-Request-Id` and in the log." },
};

export const pendingFields = {
  status: { const: "pending" },
  message: { type: "string", description: "For people; says what to do after the approval." },
  code: { type: "string" },
  approval: object({
    id: { type: "string", format: "uuid" },
    "url?": {
      type: "string",
      format: "uri",
      description: "The console page for the decision.",
    },
    expires: { type: "string", format: "date-time" },
  }),
  request_id: { type: "string", description: "As in `X-Request-Id` and in the log." },
};

const engineRefusalFields = {
  ...refusalFields,
  "expected?": { ...count, description: "Rows that the element had to affect." },
  "affected?": { ...count, description: "Rows that the element affected." },
  "constraint?": {
    ...object({
      kind: { enum: ["unique", "foreign_key", "check", "not_null"] },
      "name?": { type: "string" },
      "table?": { type: "string" },
      "columns?": listOf({ type: "string" }),
    }),
    description:
      "The constraint that a row violates. Only its kind, if part of the schema is hidden from the caller.",
  },
};
const row = ref("Row");
const previewed = { affected: count, before: listOf(row), after: listOf(row) };

/** The shapes of responses by operation. */
const answerOf: ReadonlyMap<string, string> = new Map([
  ...Object.entries(definitions).map(([name, { effect, fields }]) => {
    if (effect === "reads") return [name, "Rows"] as const;
    if (effect === "previews") return [name, "Previewed"] as const;
    return [name, "returning" in fields ? "Changed" : "Done"] as const;
  }),
  [batchKey, "BatchDone"] as const,
]);

const answers: Readonly<Record<string, Schema>> = {
  Row: {
    type: "object",
    description: "Values by column, in the order of the query.",
    additionalProperties: ref("Json"),
  },
  Json: {
    anyOf: [
      { type: ["string", "number", "boolean", "null"] },
      // The compiler refuses a generated type that is a list of itself.
      { type: "array", items: {} },
      { type: "object", additionalProperties: ref("Json") },
    ],
    description: "Any JSON.",
  },
  Rows: { ...success({ data: listOf(row) }), description: "The response to a Select." },
  Changed: {
    ...success({ message: text, affected: count, "data?": listOf(row) }),
    description: "The response to a change of rows; `data` has the rows that `returning` requests.",
  },
  Done: { ...success({ message: text }), description: "The response to any other change." },
  Previewed: {
    anyOf: [
      success(previewed),
      {
        ...success({ data: listOf(object(previewed)) }),
        description: "Of a Batch, with one element for each operation.",
      },
    ],
    description: "The response to a Preview.",
  },
  BatchDone: {
    ...success({ data: listOf(ref("ElementAnswer")) }),
    description: "The response to a Batch, with one element for each operation.",
  },
  ElementAnswer: {
    anyOf: [
      { ...listOf(row), description: "The rows of a Select." },
      { type: "string", description: "A message about a change." },
      object({ affected: count, data: listOf(row) }),
    ],
  },
  Answers: {
    ...object(Object.fromEntries(answerOf.entries().map(([name, shape]) => [name, ref(shape)]))),
    description: "The response to each operation, by its name.",
  },
  Answer: { anyOf: Array.from(new Set(answerOf.values()), ref) },
  EngineRefusal: object(engineRefusalFields),
};

const schemaColumn = object({
  name: { type: "string" },
  type: { type: "string", description: "As the table declares it." },
  "value_type?": {
    type: "string",
    description: "The type that says how values are written, if `type` does not.",
  },
  "labels?": {
    ...listOf({ type: "string" }),
    description: "The only texts that an enum allows.",
  },
  primary_key: { type: "boolean" },
  nullable: { type: "boolean" },
  "unique?": { const: true, description: "No two rows have the same value, except null." },
  "serial?": { const: true, description: "A row without a value gets the next number." },
  "computed?": { const: true, description: "The database computes the values; none can be set." },
  "default?": {
    type: "string",
    description: "The value of a row that omits the column, as SQL.",
  },
  "references?": { type: "string", description: "`table.column` in which each value must exist." },
  "comment?": { type: "string" },
});

export const schemaTable = object({
  columns: listOf(schemaColumn),
  "keys?": {
    ...listOf(listOf({ type: "string" })),
    description: "Unique keys, each as a list of columns; the primary key is first.",
  },
  "view?": { const: true, description: "A view, whose rows come from other tables." },
  "rows?": { type: "integer", description: "Approximate number of rows." },
  "comment?": { type: "string" },
});

export const emailOrNull: Schema = { oneOf: [ref("Email"), { type: "null" }] };

export const schemas: Readonly<Record<string, Schema>> = {
  ...answers,
  McpMessage: {
    description: "One JSON-RPC 2.0 message.",
    oneOf: [
      object({ jsonrpc, "id?": id, method: text, "params?": anyObject }),
      object({ jsonrpc, id, result: anyObject }),
      object({ jsonrpc, "id?": id, error: anyObject }),
    ],
  },
  Success: success(),
  Role: { enum: roles },
  DatabaseOrEvery: {
    type: "string",
    pattern: `^(?:\\*|${databasePattern})$`,
    description: "A database, or `*` for every one.",
  },
  Username: { type: "string", pattern: `^${username}$` },
  AnyUsername: {
    type: "string",
    anyOf: [
      { type: "string", pattern: `^${username}$` },
      { type: "string", pattern: externalName.source },
    ],
    description: "A user, or `<prefix>:<username>` of an issuer.",
  },
  Password: {
    type: "string",
    minLength: 8,
    description: "At least 8 characters and at most 1,024 bytes of UTF-8.",
  },
  Email: {
    type: "string",
    minLength: 1,
    maxLength: 254,
    pattern: "^[^\\u0000-\\u001f\\u007f-\\u009f]*$",
  },
  TableOrPattern: {
    type: "string",
    pattern: tablePattern.source,
    description: "A table, or a prefix of table names followed by `*`.",
  },
  Entry: {
    ...object({ role, ...optional }),
    description: "Role and limits of an entry; docs/access-file.md explains each key.",
  },
  Grant: object(grant),
  UserGrant: object({ username: ref("AnyUsername"), ...grant }),
  GroupGrant: object({ group: ref("AnyGroup"), ...grant }),
  AnyGroup: {
    type: "string",
    anyOf: [
      { type: "string", pattern: wholePlainName.source },
      { type: "string", pattern: externalGroup.source },
    ],
    description: "A local group, or `<prefix>:<group>` of an issuer.",
  },
  Group: {
    ...object({
      name: ref("AnyGroup"),
      "members?": listOf(ref("AnyUsername")),
      access: listOf(ref("Grant")),
    }),
    description: "`members` is absent for a group of an issuer.",
  },
  IssuedToken: {
    ...object({
      id: text,
      "name?": text,
      user: ref("AnyUsername"),
      database: ref("DatabaseOrEvery"),
      issued: { type: "string", format: "date-time" },
      expires: { type: "string", format: "date-time" },
      "last_used?": { type: "string", format: "date-time" },
    }),
    description: "`last_used` is at most a minute old, and absent for a token that was never used.",
  },
  User: object({
    username: ref("AnyUsername"),
    email: emailOrNull,
    disabled: { type: "boolean" },
    "external?": { const: true },
    "same_as?": ref("AnyUsername"),
    "token_groups?": {
      const: true,
      description: "Groups of the user's tokens may have entries, which `access` lacks.",
    },
    access: listOf(ref("UserEntry")),
  }),
  UserEntry: {
    ...object({ "group?": ref("AnyGroup"), ...grant }),
    description: "An entry of the user, or with `group` one of a local group.",
  },
  EffectiveAccess: {
    ...object({
      database: ref("DatabaseOrEvery"),
      "table?": ref("TableOrPattern"),
      operations: listOf({ enum: permissionClasses }),
      ...effectiveLimits,
      "via?": { enum: ["query", "mcp"] },
      "client?": { type: "string" },
      entry: { type: "string" },
      "boundary?": { type: "string" },
      "reason?": { type: "string" },
    }),
    description:
      "The operations of the user at one place, by own entries, groups and boundaries together. The most specific place decides.",
  },
  JwkSet: {
    type: "object",
    description: "The public keys that verify login tokens (RFC 7517).",
    properties: {
      keys: listOf({ type: "object", required: ["kty", "kid", "alg"], not: { required: ["d"] } }),
    },
    required: ["keys"],
    additionalProperties: false,
  },
  ProtectedResource: object({
    resource: text,
    authorization_servers: listOf(text),
    scopes_supported: listOf(text),
    bearer_methods_supported: listOf(text),
  }),
  AuthorizationServer: {
    type: "object",
    description: "Metadata (RFC 8414), with further fields.",
    properties: { issuer: text, token_endpoint: text, authorization_endpoint: text },
    required: ["issuer", "token_endpoint", "authorization_endpoint"],
  },
};
