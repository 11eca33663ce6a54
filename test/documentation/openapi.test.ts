import t from "tap";
import { openApiText, pathOf } from "../../generate/openapi/document.ts";
import { configurationSchema } from "../../src/config/schema.ts";
import { routeTable } from "../../src/gateway/routes.ts";
import { queryRefusals } from "../../src/query/refusal.ts";
import { refusals } from "../../src/refusal.ts";
import {
  answerSchema,
  bodySchema,
  document,
  methods,
  schemaAt,
  shape,
  text,
} from "./openapi-kit.ts";

t.test("the document is as the code has it: `npm run docs` was run", (t) => {
  t.equal(text, openApiText());
  t.end();
});

t.test("the document is OpenAPI 3.1, and every schema in it can be used", (t) => {
  const { paths, components } = shape.parse(document);
  for (const name of Object.keys(components.schemas)) {
    t.ok(schemaAt("components", "schemas", name), name);
  }
  for (const [path, item] of Object.entries(paths)) {
    const named = path.match(/(?<=\{)\w+(?=\})/g) ?? [];
    t.strictSame(
      (item.parameters ?? []).map(({ name }) => name),
      named,
      path,
    );
    for (const method of methods) {
      const operation = item[method];
      if (operation === undefined) continue;
      const route = `${method} ${path}`;
      if (operation.requestBody) t.ok(bodySchema(route), `${route} takes a body`);
      for (const [status, { content }] of Object.entries(operation.responses)) {
        const code = status === "default" ? status : Number(status);
        if (content) t.ok(answerSchema(route, code), `${route} answers ${status}`);
      }
    }
  }
  t.end();
});

t.test("the document has every route of the gateway's own, and no other", (t) => {
  const { paths } = shape.parse(document);
  const documented = Object.entries(paths).flatMap(([path, item]) =>
    Object.keys(item)
      .filter((key) => key !== "parameters")
      .map((method) => `${method.toUpperCase()} ${path}`),
  );
  const served = routeTable(configurationSchema.parse({})).flatMap(({ pattern, methods }) =>
    Array.from(methods.keys(), (method) => `${method} ${pathOf(pattern)}`),
  );
  t.strictSame(documented.sort(), served.sort());
  const ids = text.match(/(?<=operationId: ").*(?=")/g) ?? [];
  t.equal(new Set(ids).size, served.length, "each has an id of its own");
  t.end();
});

/** Codes of unknown paths and methods and of configured routes, and those that are met on `/mcp` or the command line alone. */
const elsewhere: ReadonlySet<string> = new Set([
  ...["not_found", "method_not_allowed", "path_not_canonical"],
  ...["insufficient_scope", "token_read_only", "issuer_unreachable"],
  ...["key_not_found", "version_conflict"],
]);

t.test("the document has every code of a refusal at one route at least", (t) => {
  const codes = [...Object.keys(refusals), ...Object.keys(queryRefusals)];
  for (const code of codes) {
    t.equal(text.includes(`"${code}"`), !elsewhere.has(code), code);
  }
  t.end();
});
