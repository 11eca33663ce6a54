/** Run before the tests: what they start is compiled once. */
import { globSync } from "node:fs";
import path from "node:path";
import { pathToFileURL } from "node:url";
import t from "tap";
import { startGateway } from "./gateway.ts";
import { projectRoot } from "./process.ts";

// Most tests kill their gateways, which then cache nothing.
t.test("a gateway caches its compiled modules", async (t) => {
  const gateway = await startGateway(t);
  await gateway.get("/api/users", await gateway.login());
  t.equal(await gateway.service.stop(), 0);
});

t.test("tests are compiled, though none of them runs", async (t) => {
  const files = globSync("test/**/*.test.ts", { cwd: projectRoot, exclude: ["**/node_modules"] });
  const urls = files.map((file) => pathToFileURL(path.join(projectRoot, file)).href);
  // All are loaded before the first is run, which throws.
  const modules = ["data:text/javascript,throw 0", ...urls];
  const program = modules.map((url) => `import ${JSON.stringify(url)};`).join("");
  const thrown = await import(`data:text/javascript,${encodeURIComponent(program)}`).catch(
    (error: unknown) => error,
  );
  t.equal(thrown, 0);
});
