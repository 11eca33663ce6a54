import { writeFileSync } from "node:fs";
import { STATUS_CODES } from "node:http";
import { Document, isScalar, isSeq, visit } from "yaml";
import { routeTable } from "../../src/app/routes.ts";
import { version } from "../../src/core/base/product.ts";
import { type RefusalCode, refusals } from "../../src/core/base/refusal.ts";
import { configurationSchema } from "../../src/core/config/schema.ts";
import type { Endpoint } from "../../src/core/http/route.ts";
import type { Schema } from "../../src/core/query/kind.ts";
import { queryRefusals } from "../../src/core/query/refusal.ts";
import { querySchema } from "../query-schema.ts";
import { notReady } from "./refusal-lists.ts";
import { type Operation, operations } from "./routes.ts";
import {
  object,
  pendingFields,
  readiness,
  ref,
  refusalFields,
  schemaPrefix,
  schemas,
} from "./schemas.ts";

/**
 * Writes docs/openapi.yaml, the HTTP interface as OpenAPI 3.1, from the route table, the table of
 * refusals and `routes.ts`.
 */

const parameters: Readonly<Record<string, Schema>> = {
  username: ref("AnyUsername"),
  database: ref("DatabaseOrEvery"),
  group: ref("AnyGroup"),
  id: { type: "string" },
  table: ref("PlainName"),
  table_or_pattern: ref("TableOrPattern"),
  "*": { type: "string", description: "One or more segments." },
};

/** Converts `/oauth/*` to `/oauth/{endpoint}`. */
export function pathOf(pattern: string): string {
  return pattern.replace(/:(\w+)/g, "{$1}").replace(/\*$/, "{endpoint}");
}

function parametersOf(pattern: string) {
  const names = pattern.split("/").filter((segment) => /^[:*]/.test(segment));
  return names.map((segment) => ({
    name: segment === "*" ? "endpoint" : segment.slice(1),
    in: "path",
    required: true,
    schema: parameters[segment === "*" ? "*" : segment.slice(1)] ?? {},
  }));
}

/** Converts `PUT /api/users/:username/password` to `putApiUsersByUsernamePassword`. */
function operationIdOf(name: string): string {
  const words = name
    .toLowerCase()
    .replaceAll("/:", "/by_")
    .replace("*", "any")
    .split(/[^a-z]+/);
  return words
    .filter((word) => word !== "")
    .map((word, at) => (at === 0 ? word : word.charAt(0).toUpperCase() + word.slice(1)))
    .join("");
}

function operationObject(name: string, endpoint: Endpoint) {
  const operation = operations[name];
  if (operation === undefined)
    throw new Error(`generate/openapi/routes.ts does not describe ${name}`);
  const { summary, query = {}, headers = {}, body } = operation;
  const optional = [
    ...Object.entries(query).map(([name, schema]) => ({ name, in: "query", schema })),
    ...Object.entries(headers).map(([name, header]) => ({ name, in: "header", ...header })),
  ];
  return {
    operationId: operationIdOf(name),
    summary,
    ...(endpoint.authentication === "public" ? { security: [] } : {}),
    ...(optional.length === 0 ? {} : { parameters: optional }),
    ...(body === undefined ? {} : { requestBody: { required: true, content: json(body) } }),
    responses: responses(operation, endpoint),
  };
}

function paths() {
  const table = routeTable(configurationSchema.parse({}));
  const items = table.map(({ pattern, methods }) => {
    const found = Array.from(methods, ([method, endpoint]) => {
      return [method.toLowerCase(), operationObject(`${method} ${pattern}`, endpoint)] as const;
    });
    const named = parametersOf(pattern);
    const shared = named.length === 0 ? {} : { parameters: named };
    return [pathOf(pattern), { ...shared, ...Object.fromEntries(found) }] as const;
  });
  return Object.fromEntries(items);
}

const introduction = `The gateway's own routes, without those configured in \`[[routes]]\`. HEAD works where GET does.
An unknown path gets 404 (\`not_found\`), and a method that a path does not support gets 405
(\`method_not_allowed\`) with \`Allow\`. Every response has \`X-Request-Id\`, and decisions of the gateway have
\`X-Gatehouse-Decision\`. \`auth.accept\` adds further credentials to \`/query\` and \`/schema\`. docs/http.md explains
each code.`;

function openApiDocument() {
  const query = querySchema("full", schemaPrefix);
  return {
    openapi: "3.1.0",
    jsonSchemaDialect: "https://json-schema.org/draft/2020-12/schema",
    info: { title: "Gatehouse", version, description: introduction },
    servers: [
      {
        url: "http://127.0.0.1:8080",
        description:
          "The default address. server.base_path is added to it, except for paths below /.well-known/, which stay at the root (docs/http.md).",
      },
    ],
    security: [{ bearer: [] }],
    paths: paths(),
    components: {
      securitySchemes: {
        bearer: { type: "http", scheme: "bearer", bearerFormat: "JWT, or gh_ and 43 characters" },
      },
      schemas: {
        Refusal: object(refusalFields),
        Pending: object(pendingFields),
        NotReady: object({ ...refusalFields, code: { enum: notReady }, ...readiness }),
        ...schemas,
        Query: query.body,
        ...query.definitions,
      },
    },
  };
}

/** Error codes by status. */
type Codes = Readonly<Record<number, readonly string[]>>;

/** Codes that any request may get. */
const everywhere = [
  ...(["bad_request", "several_authorization_headers", "several_credentials"] as const),
  ...(["host_not_allowed", "origin_not_allowed", "request_timeout"] as const),
  ...(["headers_too_large", "internal_error"] as const),
];
const withToken = [
  ...(["unauthenticated", "token_invalid", "token_expired", "token_revoked"] as const),
  ...(["user_gone", "groups_unavailable", "issuer_unreachable"] as const),
];
/** With "basic" in `auth.accept`. */
const withPassword = ["credentials_invalid", "too_many_attempts", "login_busy"] as const;
const withBody = ["unsupported_media_type", "body_too_large", "busy"] as const;

function authenticationRefusals({ authentication }: Endpoint): readonly RefusalCode[] {
  if (authentication === "public") return [];
  if (authentication === "administration") return [...withToken, "administration_disabled"];
  return authentication === "data" ? [...withToken, ...withPassword] : withToken;
}

function bodyRefusals(operation: Operation): readonly string[] {
  if (operation.body === undefined) return [];
  return operation === operations["POST /query"]
    ? Object.keys(queryRefusals)
    : ["invalid_body", "duplicate_key"];
}

function isRefusalCode(code: string): code is RefusalCode {
  return code in refusals;
}

/** The codes of MCP and OAuth are not part of this document, except those of access to `/mcp`. */
function refusalsOf(operation: Operation, endpoint: Endpoint): Iterable<string> {
  const isForeign = operation.others !== undefined && endpoint.authentication !== "data";
  if (isForeign) return typeof endpoint.authentication === "object" ? withToken : [];
  return new Set<string>([
    ...everywhere,
    // A replica without a valid lease still responds to /healthz.
    ...(operation === operations["GET /healthz"] ? [] : ["store_unreachable"]),
    ...authenticationRefusals(endpoint),
    ...(endpoint.bodyLimit === undefined ? [] : withBody),
    ...bodyRefusals(operation),
    ...(operation.refusals ?? []),
  ]);
}

function codesOf(operation: Operation, endpoint: Endpoint): Codes {
  const byStatus: Record<number, string[]> = {};
  for (const code of refusalsOf(operation, endpoint)) {
    const status = isRefusalCode(code) ? refusals[code][0] : 400;
    byStatus[status] = [...(byStatus[status] ?? []), code];
  }
  return byStatus;
}

const coded = (shape: string, codes: readonly string[]): Schema => ({
  allOf: [ref(shape)],
  properties: { code: { enum: codes } },
});

const json = (schema: Schema) => ({ "application/json": { schema } });

function refusalResponses(operation: Operation, endpoint: Endpoint) {
  const own = codesOf(operation, endpoint);
  const forwarded = Object.groupBy(
    Object.entries(operation.upstreamRefusals ?? {}),
    ([, status]) => status,
  );
  const statuses = new Set([...Object.keys(own), ...Object.keys(forwarded)].map(Number));
  return Array.from(statuses, (status) => {
    const codes = own[status];
    const engineCodes = forwarded[status]?.map(([code]) => code);
    const schemas = [
      // A query that needs approval is not refused yet.
      ...(codes === undefined ? [] : [coded(status < 400 ? "Pending" : "Refusal", codes)]),
      ...(engineCodes === undefined ? [] : [coded("EngineRefusal", engineCodes)]),
    ];
    const [schema = {}, ...others] = schemas;
    const either = others.length === 0 ? schema : { anyOf: schemas };
    const description = STATUS_CODES[status] ?? String(status);
    return [String(status), { description, content: json(either) }] as const;
  });
}

function responses(operation: Operation, endpoint: Endpoint) {
  const { status = 200, answer, streams = [], notReady, others } = operation;
  const streamed = Object.fromEntries(
    streams.map((type) => [type, { schema: { type: "string" } }]),
  );
  return Object.fromEntries([
    ...(answer === undefined
      ? []
      : [
          [
            String(status),
            { description: "Success.", content: { ...json(answer), ...streamed } },
          ] as const,
        ]),
    ...refusalResponses(operation, endpoint),
    ...(notReady === undefined
      ? []
      : [["503", { description: "Not ready.", content: json(notReady) }] as const]),
    ...(others === undefined ? [] : [["default", { description: others }] as const]),
  ]);
}

/** YAML 1.2 with JSON strings. A list of scalars takes one line. */
function toYaml(value: unknown): string {
  const document = new Document(value, { aliasDuplicateObjects: false });
  visit(document, {
    Collection(_, collection) {
      const isShort = isSeq(collection) && collection.items.every(isScalar);
      collection.flow = isShort || collection.items.length === 0;
    },
  });
  return document.toString({
    ...{ lineWidth: 0, flowCollectionPadding: false },
    ...{ defaultStringType: "QUOTE_DOUBLE", defaultKeyType: "PLAIN" },
    doubleQuotedMinMultiLineLength: Number.POSITIVE_INFINITY,
  });
}

const origin = "# Generated by `npm run docs` from generate/openapi; edit that.\n";

const openApiFile = new URL("../../docs/openapi.yaml", import.meta.url);

export function openApiText(): string {
  return origin + toYaml(openApiDocument());
}

if (import.meta.main) writeFileSync(openApiFile, openApiText());
