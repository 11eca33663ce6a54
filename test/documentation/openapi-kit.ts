/** docs/openapi.yaml as a program reads it, and answers held against it. */
import { readFileSync } from "node:fs";
import path from "node:path";
import { Ajv2020, type ValidateFunction } from "ajv/dist/2020.js";
import { parse } from "yaml";
import * as z from "zod";

/** The text of the document. */
export const text = readFileSync(path.join(import.meta.dirname, "../../docs/openapi.yaml"), "utf8");

const schema = z.record(z.string(), z.unknown());
const media = z.strictObject({ schema });
const content = z.strictObject({
  "application/json": media,
  "application/x-ndjson": media.optional(),
  "text/csv": media.optional(),
});
const response = z.strictObject({ description: z.string().min(1), content: content.optional() });
const parameter = z.strictObject({
  name: z.string(),
  in: z.literal("path"),
  required: z.literal(true),
  schema,
});
const asked = z.strictObject({
  name: z.string(),
  in: z.enum(["query", "header"]),
  schema,
  description: z.string().optional(),
});
const operation = z.strictObject({
  operationId: z.string().regex(/^[a-z][A-Za-z]+$/),
  summary: z.string().min(1),
  parameters: z.array(asked).optional(),
  security: z.array(z.record(z.string(), z.array(z.string()))).optional(),
  requestBody: z.strictObject({ required: z.boolean(), content }).optional(),
  responses: z
    .record(z.string().regex(/^(?:[1-5]\d\d|default)$/), response)
    .refine((responses) => Object.keys(responses).length > 0),
});
/** The methods that a path may have, as the document writes them. */
export const methods = ["get", "put", "post", "delete", "options", "patch"] as const;
const optional = operation.optional();
const pathItem = z.strictObject({
  parameters: z.array(parameter).optional(),
  get: optional,
  put: optional,
  post: optional,
  delete: optional,
  options: optional,
  patch: optional,
});

/** What of OpenAPI 3.1 (sections 4.8.1 to 4.8.30) the document uses, and nothing else. */
export const shape = z.strictObject({
  openapi: z.literal("3.1.0"),
  jsonSchemaDialect: z.literal("https://json-schema.org/draft/2020-12/schema"),
  info: z.strictObject({ title: z.string(), version: z.string(), description: z.string() }),
  servers: z.array(z.strictObject({ url: z.url(), description: z.string() })),
  security: z.array(z.record(z.string(), z.array(z.string()))),
  paths: z.record(z.string().startsWith("/"), pathItem),
  components: z.strictObject({
    securitySchemes: z.strictObject({
      bearer: z.strictObject({
        type: z.literal("http"),
        scheme: z.literal("bearer"),
        bearerFormat: z.string(),
      }),
    }),
    schemas: z.record(z.string().regex(/^[A-Za-z0-9._-]+$/), schema),
  }),
});

/** The document, parsed. */
export const document: unknown = parse(text);

const ajv = new Ajv2020({ strict: false, allErrors: true });
ajv.addSchema(z.record(z.string(), z.unknown()).parse(document), "openapi");

/** The schema at a place of the document; undefined if there is none. */
export function schemaAt(...steps: readonly string[]): ValidateFunction | undefined {
  const found = steps.reduce<unknown>(
    (at, step) => z.record(z.string(), z.unknown()).safeParse(at).data?.[step],
    document,
  );
  if (found === undefined) return undefined;
  const pointer = steps.map((step) => step.replaceAll("~", "~0").replaceAll("/", "~1"));
  return ajv.compile({ $ref: `openapi#/${pointer.map(encodeURIComponent).join("/")}` });
}

/** The schema of an operation's answer with this status. */
export function answerSchema(
  route: string,
  status: number | "default",
): ValidateFunction | undefined {
  const [method = "", pattern = ""] = route.split(" ");
  const place = ["paths", pattern, method.toLowerCase(), "responses", String(status)];
  return schemaAt(...place, "content", "application/json", "schema");
}

/** The schema of an operation's body. */
export function bodySchema(route: string): ValidateFunction | undefined {
  const [method = "", pattern = ""] = route.split(" ");
  const place = ["paths", pattern, method.toLowerCase(), "requestBody"];
  return schemaAt(...place, "content", "application/json", "schema");
}
