import { readFileSync } from "node:fs";
import path from "node:path";
import t from "tap";
import { startGateway } from "../kit/gateway.ts";
import { projectRoot } from "../kit/process.ts";

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
