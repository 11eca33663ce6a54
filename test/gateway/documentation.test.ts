import { readFileSync } from "node:fs";
import path from "node:path";
import t from "tap";
import { errorsPage, errorsText } from "../../generate/errors.ts";
import { routeTable } from "../../src/app/routes.ts";
import { refusals } from "../../src/core/base/refusal.ts";
import { isOwnPath, splitSegments } from "../../src/core/config/routes.ts";
import { configurationSchema } from "../../src/core/config/schema.ts";
import { queryRefusals } from "../../src/core/query/refusal.ts";
import { startGateway } from "../kit/gateway.ts";
import { projectRoot } from "../kit/process.ts";

const text = readFileSync(path.join(import.meta.dirname, "../../docs/http.md"), "utf8");

function rows(first: RegExp): string[][] {
  return text
    .split("\n")
    .filter((line) => line.startsWith("| "))
    .map((line) => line.slice(2, -2).split(" | "))
    .filter(([cell = ""]) => first.test(cell));
}

t.test("the page of errors is up to date: npm run docs", async (t) => {
  t.equal(readFileSync(errorsPage, "utf8"), errorsText());
});

t.test("no code occurs in both tables", async (t) => {
  for (const code of Object.keys(queryRefusals)) t.notOk(code in refusals, code);
});

t.test("docs/http.md lists exactly the routes", async (t) => {
  const documented = rows(/^`[A-Z]+ \/\S*`$/).map(([route = ""]) =>
    route.slice(1, -1).replace(/<(\w+)>/g, ":$1"),
  );
  const served = routeTable(configurationSchema.parse({})).flatMap(({ pattern, methods }) =>
    Array.from(methods.keys(), (method) => `${method} ${pattern}`),
  );
  t.strictSame(documented.sort(), served.sort());
});

t.test("no configured route can have a path of the gateway itself", async (t) => {
  for (const { pattern } of routeTable(configurationSchema.parse({}))) {
    t.ok(isOwnPath(splitSegments(pattern), ""), pattern);
  }
});

const file = path.join(projectRoot, "docs/openapi.yaml");

t.test("the gateway serves the OpenAPI document below its base path", async (t) => {
  const atRoot = await startGateway(t);
  const below = await startGateway(t, { config: '[server]\nbase_path = "/_gatehouse"\n' });
  for (const [gateway, route] of [
    [atRoot, "/openapi.yaml"],
    [below, "/_gatehouse/openapi.yaml"],
  ] as const) {
    const answer = await gateway.request(route);
    t.equal(answer.status, 200, route);
    t.equal(answer.headers.get("content-type"), "application/yaml");
    t.equal(answer.text, readFileSync(file, "utf8"));
  }
  t.equal((await below.request("/openapi.yaml")).status, 404);
  t.equal((await atRoot.request("/openapi.yaml", { method: "POST" })).status, 405);
});

t.test("the package contains the document", async (t) => {
  const { files } = JSON.parse(readFileSync(path.join(projectRoot, "package.json"), "utf8"));
  t.ok(files.includes("docs/openapi.yaml"));
});
