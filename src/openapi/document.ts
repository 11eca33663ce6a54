/**
 * The HTTP interface as OpenAPI 3.1, out of the route table, the table of refusals and what
 * `operations.ts` says of each route.
 */
import { configurationSchema } from "../config/schema.ts";
import type { Endpoint } from "../gateway/route.ts";
import { routeTable } from "../gateway/routes.ts";
import { version } from "../product.ts";
import type { Schema } from "../query/kind.ts";
import { querySchema } from "../query/query-schema.ts";
import { json, responses } from "./responses.ts";
import { operations } from "./routes.ts";
import {
  object,
  pendingFields,
  readiness,
  ref,
  refusalFields,
  schemaPrefix,
  schemas,
} from "./schemas.ts";

/** What the segments of a pattern stand for, by their names. */
const parameters: Readonly<Record<string, Schema>> = {
  username: ref("AnyUsername"),
  database: ref("DatabaseOrEvery"),
  table: ref("PlainName"),
  table_or_pattern: ref("TableOrPattern"),
  "*": { type: "string", description: "One segment or more." },
};

/** A pattern as OpenAPI writes it: `/oauth/*` as `/oauth/{endpoint}`. */
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

function operationObject(name: string, endpoint: Endpoint) {
  const operation = operations[name];
  if (operation === undefined) throw new Error(`Nothing is said of ${name}`);
  const { summary, query = {}, headers = {}, body } = operation;
  const asked = [
    ...Object.entries(query).map(([name, schema]) => ({ name, in: "query", schema })),
    ...Object.entries(headers).map(([name, header]) => ({ name, in: "header", ...header })),
  ];
  return {
    summary,
    ...(endpoint.authentication === "public" ? { security: [] } : {}),
    ...(asked.length === 0 ? {} : { parameters: asked }),
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

const introduction = `What the gateway answers by itself. Routes of \`[[routes]]\` come besides; HEAD is answered
where GET is; an unknown path is 404 (\`not_found\`), and a method that a path does not have is 405
(\`method_not_allowed\`) with \`Allow\`. Every answer carries \`X-Request-Id\`, and the gateway's decisions
\`X-Gatehouse-Decision\`. docs/http.md says when each code comes.`;

/** The document, to be written as YAML or JSON. */
export function openApiDocument() {
  const query = querySchema("full", schemaPrefix);
  return {
    openapi: "3.1.0",
    jsonSchemaDialect: "https://json-schema.org/draft/2020-12/schema",
    info: { title: "Gatehouse", version, description: introduction },
    servers: [{ url: "http://127.0.0.1:8080", description: "As configured by default." }],
    security: [{ bearer: [] }],
    paths: paths(),
    components: {
      securitySchemes: {
        bearer: { type: "http", scheme: "bearer", bearerFormat: "JWT" },
      },
      schemas: {
        Refusal: object(refusalFields),
        Pending: object(pendingFields),
        NotReady: object({ ...refusalFields, ...readiness }),
        ...schemas,
        Query: query.body,
        ...query.definitions,
      },
    },
  };
}
