import { spawnSync } from "node:child_process";
import { readdirSync, readFileSync } from "node:fs";
import path from "node:path";
import t, { type Test } from "tap";
import * as z from "zod";

const project = path.join(import.meta.dirname, "../..");

const namesShape = z.record(z.string(), z.string()).transform((packages) => Object.keys(packages));
const manifestShape = z.object({ dependencies: namesShape, devDependencies: namesShape });
const manifest = manifestShape.parse(
  JSON.parse(readFileSync(path.join(project, "package.json"), "utf8")),
);

/** The packages that the TypeScript sources of a directory import. */
function importedIn(directory: string): ReadonlySet<string> {
  const names = readdirSync(path.join(project, directory), { recursive: true, encoding: "utf8" });
  const sources = names.filter((name) => name.endsWith(".ts") && !name.includes("node_modules"));
  const imported = sources.flatMap((name) => {
    const text = readFileSync(path.join(project, directory, name), "utf8");
    const found = text.matchAll(/(?:from|import\()\s*"((?:@[\w.-]+\/)?[\w-][\w.-]*)[^"]*"/g);
    return Array.from(found, ([, packageName = ""]) => packageName);
  });
  return new Set(imported);
}

t.test("a clone installs no package that only benchmarks or conformance need", (t: Test) => {
  const [bench, test] = [importedIn("bench"), importedIn("test")];
  const ofBench = manifest.devDependencies.filter((name) => bench.has(name) && !test.has(name));
  t.strictSame(ofBench, []);
  t.notOk(manifest.devDependencies.includes("@modelcontextprotocol/conformance"));
  for (const directory of ["conformance", "peers"]) {
    const names = readdirSync(path.join(project, "bench", directory));
    t.ok(
      ["package.json", "package-lock.json"].every((name) => names.includes(name)),
      directory,
    );
  }
  t.end();
});

t.test("what serves is imported from packages that an installation has", (t: Test) => {
  const builtIn = (name: string) => name === "node";
  const missing = [...importedIn("src")].filter(
    (name) => !manifest.dependencies.includes(name) && !builtIn(name),
  );
  t.strictSame(missing, []);
  t.end();
});

t.test("an install on an older Node says nothing of engines", (t: Test) => {
  const flags = ["config", "get", "loglevel"];
  const env = { ...process.env };
  delete env.npm_config_loglevel;
  const { stdout } = spawnSync("npm", flags, { cwd: project, env, encoding: "utf8" });
  t.equal(stdout.trim(), "error");
  t.end();
});
