import { tablePattern } from "../../src/access/records.ts";
import { roles } from "../../src/access/roles.ts";
import type { Schema } from "../../src/query/kind.ts";
import { plainNamePattern as plainName } from "../../src/query/names.ts";
import { entrySchemas } from "../access-schema.ts";

/** The JSON Schemas that the interface's bodies are made of, beside those of queries. */

/** Where the document writes schemas once. */
export const schemaPrefix = "#/components/schemas/";

/** A place in the document where a schema is written once. OpenAPI 3.1 takes JSON Schemas as they are. */
export function ref(name: string): Schema {
  return { $ref: schemaPrefix + name };
}

/** An object with these fields and no other; a `?` behind a name says that it may be left out. */
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

/** A success: its status and what comes with it. */
export function success(fields: Readonly<Record<string, Schema>> = {}): Schema {
  return object({ status: { const: "success" }, ...fields });
}

/** Elements of one kind. */
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
const freshness: Schema = { enum: ["fresh", "stale"] };

/** What `/readyz` tells of, ready or not. */
export const readiness = {
  upstream: { enum: ["up", "down"] },
  access_file: freshness,
  revocations: freshness,
  keys: freshness,
  access_version: text,
  version: text,
  "issuers?": {
    type: "object",
    description: "External issuers by their prefixes, as far as their keys were asked for.",
    additionalProperties: { enum: ["ok", "unreachable", "unused"] },
  },
  "store?": { enum: ["reached", "unreachable"], description: "Only with `[store]`." },
  "store_version?": { type: "integer", description: "The version that is applied here." },
  "store_lag?": { type: "integer", description: "Versions that the store was ahead." },
  "lease_age?": { type: "number", description: "Seconds since the last good poll was sent." },
};

const count: Schema = { type: "integer", minimum: 0 };

/** The fields of every refusal. */
export const refusalFields = {
  status: { const: "error" },
  message: { type: "string", description: "For people; says which rule, never a stack trace." },
  code: { type: "string", description: "Stable; programs branch on it." },
  "element?": { type: "integer", description: "Which element of a Batch is denied, from 0." },
  "reason?": { type: "string", description: "The code by which that element is denied." },
  request_id: { type: "string", description: "As in `X-Request-Id` and in the log." },
};

/** The fields of what waits for an approval. */
export const pendingFields = {
  status: { const: "pending" },
  message: { type: "string", description: "For people; says what to do once it is approved." },
  code: { type: "string" },
  approval: object({
    id: { type: "string", format: "uuid" },
    "url?": {
      type: "string",
      format: "uri",
      description: "Where it is decided, if it has a page.",
    },
    expires: { type: "string", format: "date-time" },
  }),
  request_id: { type: "string", description: "As in `X-Request-Id` and in the log." },
};

/** The fields of what the engine refuses, which the gateway passes on. */
const { request_id: _, ...engineRefusalFields } = refusalFields;
const row = ref("Row");

/** What the engine answers to queries. */
const answers: Readonly<Record<string, Schema>> = {
  Row: {
    type: "object",
    description: "Values by column: any JSON.",
    additionalProperties: true,
  },
  Rows: { ...success({ data: listOf(row) }), description: "The answer to a Select." },
  Changed: {
    ...success({ message: { type: "string" }, "affected?": count, "data?": listOf(row) }),
    description: "The answer to a change; `data` has the rows that `returning` asks for.",
  },
  Previewed: {
    ...success({ affected: count, before: listOf(row), after: listOf(row) }),
    description: "The answer to a Preview.",
  },
  BatchDone: {
    ...success({ data: listOf(ref("ElementAnswer")) }),
    description: "The answer to a Batch: one element for each of its operations.",
  },
  ElementAnswer: {
    anyOf: [
      { ...listOf(row), description: "The rows of a Select." },
      { type: "string", description: "What a change has done." },
      object({ affected: count, data: listOf(row) }),
    ],
  },
  Answer: { anyOf: ["Rows", "Changed", "Previewed", "BatchDone"].map(ref) },
  EngineRefusal: object(engineRefusalFields),
};

const schemaColumn = object({
  name: { type: "string" },
  type: { type: "string", description: "As the table declares it." },
  primary_key: { type: "boolean" },
  nullable: { type: "boolean" },
  "unique?": { const: true, description: "No two rows hold the same value, null aside." },
  "serial?": { const: true, description: "A row that leaves it out gets the next number." },
  "default?": {
    type: "string",
    description: "What a row holds that leaves it out, in the database's words.",
  },
  "references?": { type: "string", description: "`table.column` whose values it may hold." },
  "comment?": { type: "string" },
});

/** What `GET /schema` tells of a table. */
export const schemaTable = object({
  columns: listOf(schemaColumn),
  "keys?": {
    ...listOf(listOf({ type: "string" })),
    description: "Columns whose values, together, each row has alone: the primary key first.",
  },
  "rows?": { type: "integer", description: "About how many there are." },
  "comment?": { type: "string" },
});

/** An email address, or null where there is none. */
export const emailOrNull: Schema = { oneOf: [ref("Email"), { type: "null" }] };

/** The document's own schemas, by name. */
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
    pattern: `^(?:\\*|${plainName})$`,
    description: "A database, or `*` for every one.",
  },
  Username: { type: "string", pattern: `^${username}$` },
  AnyUsername: {
    type: "string",
    pattern: `^(?:${plainName}:)?${username}$`,
    description: "A user, or `<prefix>:<username>` of an external authorization server.",
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
    description: "A table, or the beginning of the names of some and `*`.",
  },
  Entry: {
    ...object({ role, ...optional }),
    description: "What an entry says of its place; docs/operations.md has what each key means.",
  },
  Grant: object(grant),
  UserGrant: object({ username: ref("AnyUsername"), ...grant }),
  User: object({
    username: ref("AnyUsername"),
    email: emailOrNull,
    disabled: { type: "boolean" },
    "external?": { const: true },
    access: listOf(ref("Grant")),
  }),
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
    description: "Metadata as RFC 8414 has it; more fields than these are given.",
    properties: { issuer: text, token_endpoint: text, authorization_endpoint: text },
    required: ["issuer", "token_endpoint", "authorization_endpoint"],
  },
};
