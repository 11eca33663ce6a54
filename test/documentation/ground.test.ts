import { spawnSync } from "node:child_process";
import { createHash } from "node:crypto";
import { readdirSync, readFileSync, writeFileSync } from "node:fs";
import path from "node:path";
import t, { type Test } from "tap";
import { parse } from "yaml";
import * as z from "zod";
import { install } from "../commands/kit.ts";
import { sharedServer } from "../engine/postgres/kit.ts";
import { readPage } from "../kit/page.ts";
import { makeStore } from "../store/kit.ts";

const root = path.join(import.meta.dirname, "../..");
const read = (name: string) => readFileSync(path.join(root, name), "utf8");

const names = z.record(z.string(), z.string()).transform((packages) => Object.keys(packages));
const manifest = z
  .object({ version: z.string(), license: z.string(), dependencies: names, devDependencies: names })
  .parse(JSON.parse(read("package.json")));

t.test("the license is the unchanged Apache License 2.0", (t) => {
  t.equal(manifest.license, "Apache-2.0");
  const digest = createHash("sha256").update(read("LICENSE")).digest("hex");
  t.equal(digest, "c71d239df91726fc519c6eb72d318ec65820627232b2f796219e87dcf35d0ab4");
  t.end();
});

t.test("the changelog has a section for unreleased changes and for the version", (t) => {
  const versions = Array.from(read("CHANGELOG.md").matchAll(/^## \[?([^\]\n]+?)\]?(?: - .*)?$/gm));
  const found = versions.map(([, name]) => name);
  t.equal(found[0], "Unreleased");
  t.ok(found.includes(manifest.version), manifest.version);
  t.end();
});

t.test("public CI runs .ci/run with read permission only", (t) => {
  const workflow = z
    .object({
      permissions: z.strictObject({ contents: z.literal("read") }),
      jobs: z.object({
        test: z.object({ steps: z.array(z.object({ run: z.string().optional() })) }),
      }),
    })
    .parse(parse(read(".github/workflows/ci.yml")));
  t.strictSame(
    workflow.jobs.test.steps.flatMap(({ run }) => run ?? []),
    ["bash .ci/run"],
  );
  for (const name of ["bug", "feature"]) {
    t.match(parse(read(`.github/ISSUE_TEMPLATE/${name}.yml`)), { name: String, body: Array });
  }
  t.end();
});

t.test("the documented command writes a bill of materials of all dependencies", (t) => {
  const [, command = "", file = ""] = /^ +(bash .*) > (\S+)$/m.exec(read("CONTRIBUTING.md")) ?? [];
  t.match(file, /\.cdx\.json$/);
  const { status, stdout, stderr } = spawnSync("sh", ["-c", command], {
    cwd: root,
    encoding: "utf8",
  });
  t.equal(status, 0, stderr);
  const { components } = z
    .object({ components: z.array(z.object({ name: z.string() })) })
    .parse(JSON.parse(stdout));
  const named = new Set(components.map(({ name }) => name));
  for (const name of manifest.dependencies) t.ok(named.has(name), name);
  t.notOk(named.has("tap"), "and of nothing that only development needs");
  t.end();
});

function importedIn(directory: string): ReadonlySet<string> {
  const files = readdirSync(path.join(root, directory), { recursive: true, encoding: "utf8" });
  const sources = files.filter((name) => name.endsWith(".ts") && !name.includes("node_modules"));
  const imported = sources.flatMap((name) => {
    const found = read(path.join(directory, name)).matchAll(
      /(?:from|import\()\s*"((?:@[\w.-]+\/)?[\w-][\w.-]*)[^"]*"/g,
    );
    return Array.from(found, ([, packageName = ""]) => packageName);
  });
  return new Set(imported);
}

t.test("a clone installs no package that only benchmarks need", (t: Test) => {
  const [bench, test] = [importedIn("bench"), importedIn("test")];
  const ofBench = manifest.devDependencies.filter((name) => bench.has(name) && !test.has(name));
  t.strictSame(ofBench, []);
  t.notOk(manifest.devDependencies.includes("@modelcontextprotocol/conformance"));
  for (const directory of ["conformance", "peers", "relations"]) {
    const files = readdirSync(path.join(root, "bench", directory));
    t.ok(files.includes("package.json") && files.includes("package-lock.json"), directory);
  }
  t.end();
});

t.test("src imports only packages that an installation has", (t: Test) => {
  const installed = [...manifest.dependencies, "node"];
  t.strictSame(
    [...importedIn("src")].filter((name) => !installed.includes(name)),
    [],
  );
  t.end();
});

t.test("an installation on an older Node prints no warnings", (t: Test) => {
  const { npm_config_loglevel: _, ...env } = process.env;
  const flags = ["config", "get", "loglevel"];
  const { stdout } = spawnSync("npm", flags, { cwd: root, env, encoding: "utf8" });
  t.equal(stdout.trim(), "error");
  t.end();
});

const page = read("docs/replicas.md");

function firstCells(heading: string): string[] {
  const [, section = ""] = page.split(`### ${heading}\n`);
  const [table = ""] = /^\|[-|]+\|\n((?:\|.*\n)+)/m.exec(section)?.slice(1) ?? [];
  return table
    .trim()
    .split("\n")
    .map((row) => row.split("|")[1]?.trim() ?? "");
}

t.test("the page on replicas lists each table of the store", async (t) => {
  const store = await makeStore(t, {}, await sharedServer());
  const found = await store.sql(
    "select tablename from pg_tables where schemaname = 'gatehouse' order by tablename",
  );
  const told = firstCells("What is in the store").flatMap((cell) => cell.match(/\w+/g) ?? []);
  t.strictSame(
    told.toSorted(),
    found.map(({ tablename }) => tablename),
  );
});

const { content: document, code } = readPage("access-policy.md");
const [policy = "", expectations = ""] = code("toml");

t.test("the policy of the guide meets its expectations, and a wider policy does not", async (t) => {
  const gatehouse = install(t);
  const at = (name: string) => path.join(gatehouse.home, name);
  writeFileSync(at("access.toml"), policy);
  writeFileSync(at("policy.test.toml"), expectations);
  const run = () =>
    gatehouse.run("access test", [at("policy.test.toml"), "--file", at("access.toml")]);
  t.match(await run(), { code: 0, stdout: "3 expectations, 0 failed\n", stderr: "" });

  writeFileSync(at("before.toml"), policy);
  writeFileSync(at("access.toml"), policy.replace('require_where = ["id"]\n', ""));
  const { code, stdout } = await run();
  t.equal(code, 1);
  t.ok(document.includes(stdout.replaceAll(`${gatehouse.home}/`, "")), stdout);
  const diff = await gatehouse.run("access diff", [at("before.toml"), at("access.toml")]);
  t.equal(diff.stdout, 'rita on main.tickets: require_where from ["id"] to no limit\n');
});

t.test("the guide names every access command and every option of grant", async (t) => {
  const gatehouse = install(t);
  const help = await gatehouse.run("access --help");
  const commands = Array.from(help.stdout.matchAll(/^ {2}(\w+) \[options\]/gm), ([, name]) => name);
  t.ok(commands.length >= 8, commands.join());
  for (const name of commands) t.match(document, `access ${name}`);
  const grant = await gatehouse.run("access grant --help");
  const options = grant.stdout.match(/--(?!config|help)[a-z-]+/g) ?? [];
  for (const option of options) t.match(document, option);
});
