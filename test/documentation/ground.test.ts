/** What a stranger who wants to use or change the project finds. */
import { spawnSync } from "node:child_process";
import { createHash } from "node:crypto";
import { readdirSync, readFileSync, writeFileSync } from "node:fs";
import path from "node:path";
import t, { type Test } from "tap";
import { parse } from "yaml";
import * as z from "zod";
import { MIGRATIONS } from "../../src/store/migrations.ts";
import { install } from "../commands/kit.ts";
import { sharedServer } from "../engine/postgres/kit.ts";
import { makeStore } from "../store/kit.ts";

const root = path.join(import.meta.dirname, "../..");
const read = (name: string) => readFileSync(path.join(root, name), "utf8");

const manifest = z
  .object({
    version: z.string(),
    license: z.string(),
    dependencies: z.record(z.string(), z.string()),
  })
  .parse(JSON.parse(read("package.json")));

t.test("the licence is the whole Apache License 2.0, and the package says so", (t) => {
  t.equal(manifest.license, "Apache-2.0");
  const digest = createHash("sha256").update(read("LICENSE")).digest("hex");
  t.equal(digest, "c71d239df91726fc519c6eb72d318ec65820627232b2f796219e87dcf35d0ab4");
  t.end();
});

t.test("the changelog has a part for what is to come, and one for the version", (t) => {
  const versions = Array.from(read("CHANGELOG.md").matchAll(/^## \[?([^\]\n]+?)\]?(?: - .*)?$/gm));
  const names = versions.map(([, name]) => name);
  t.equal(names[0], "Unreleased");
  t.ok(names.includes(manifest.version), manifest.version);
  t.end();
});

t.test("public CI runs what CI runs here, without a right to write", (t) => {
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

t.test("the documented command writes a bill of materials of all that is installed", (t) => {
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
  for (const name of Object.keys(manifest.dependencies)) t.ok(named.has(name), name);
  t.notOk(named.has("tap"), "and of nothing that only development needs");
  t.end();
});

const at = path.join(import.meta.dirname, "../..");

const namesShape = z.record(z.string(), z.string()).transform((packages) => Object.keys(packages));
const manifestShape = z.object({ dependencies: namesShape, devDependencies: namesShape });
const packageOf = manifestShape.parse(
  JSON.parse(readFileSync(path.join(at, "package.json"), "utf8")),
);

function importedIn(directory: string): ReadonlySet<string> {
  const names = readdirSync(path.join(at, directory), { recursive: true, encoding: "utf8" });
  const sources = names.filter((name) => name.endsWith(".ts") && !name.includes("node_modules"));
  const imported = sources.flatMap((name) => {
    const text = readFileSync(path.join(at, directory, name), "utf8");
    const found = text.matchAll(/(?:from|import\()\s*"((?:@[\w.-]+\/)?[\w-][\w.-]*)[^"]*"/g);
    return Array.from(found, ([, packageName = ""]) => packageName);
  });
  return new Set(imported);
}

t.test("a clone installs no package that only benchmarks or conformance need", (t: Test) => {
  const [bench, test] = [importedIn("bench"), importedIn("test")];
  const ofBench = packageOf.devDependencies.filter((name) => bench.has(name) && !test.has(name));
  t.strictSame(ofBench, []);
  t.notOk(packageOf.devDependencies.includes("@modelcontextprotocol/conformance"));
  for (const directory of ["conformance", "peers"]) {
    const names = readdirSync(path.join(at, "bench", directory));
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
    (name) => !packageOf.dependencies.includes(name) && !builtIn(name),
  );
  t.strictSame(missing, []);
  t.end();
});

t.test("an install on an older Node says nothing of engines", (t: Test) => {
  const flags = ["config", "get", "loglevel"];
  const env = { ...process.env };
  delete env.npm_config_loglevel;
  const { stdout } = spawnSync("npm", flags, { cwd: at, env, encoding: "utf8" });
  t.equal(stdout.trim(), "error");
  t.end();
});

const page = readFileSync(new URL("../../docs/operations.md", import.meta.url), "utf8");

function firstCells(heading: string): string[] {
  const [, section = ""] = page.split(`### ${heading}\n`);
  const [table = ""] = /^\|[-|]+\|\n((?:\|.*\n)+)/m.exec(section)?.slice(1) ?? [];
  return table
    .trim()
    .split("\n")
    .map((row) => row.split("|")[1]?.trim() ?? "");
}

t.test("operators are told of each table of the store, and of each migration", async (t) => {
  const store = await makeStore(t, {}, await sharedServer());
  const found = await store.sql(
    "select tablename from pg_tables where schemaname = 'gatehouse' order by tablename",
  );
  const told = firstCells("What is in the store").flatMap((cell) => cell.match(/\w+/g) ?? []);
  t.strictSame(
    told.toSorted(),
    found.map(({ tablename }) => tablename),
  );
  const numbers = Array.from({ length: MIGRATIONS }, (_, index) => String(index + 1));
  t.strictSame(firstCells("Upgrading replicas"), numbers);
});

const document = readFileSync(new URL("../../docs/access-policy.md", import.meta.url), "utf8");
const [policy = "", expectations = ""] = Array.from(
  document.matchAll(/^```toml\n(.*?)^```$/gms),
  ([, block = ""]) => block,
);

t.test("the policy of the guide meets its expectations, and a wider one does not", async (t) => {
  const gatehouse = install(t);
  const at = (name: string) => path.join(gatehouse.home, name);
  writeFileSync(at("access.toml"), policy);
  writeFileSync(at("policy.test.toml"), expectations);
  const run = () =>
    gatehouse.run("access test", undefined, at("policy.test.toml"), "--file", at("access.toml"));
  t.match(await run(), { code: 0, stdout: "4 expectations, 0 differ\n", stderr: "" });

  writeFileSync(at("before.toml"), policy);
  writeFileSync(at("access.toml"), policy.replace('require_where = ["id"]\n', ""));
  const { code, stdout } = await run();
  t.equal(code, 1);
  t.ok(document.includes(stdout.replaceAll(`${gatehouse.home}/`, "")), stdout);
  const diff = await gatehouse.run("access diff", undefined, at("before.toml"), at("access.toml"));
  t.equal(diff.stdout, 'rita on main.tickets: require_where ["id"] to none\n');
});

t.test("the guide names every command about access and every option of grant", async (t) => {
  const gatehouse = install(t);
  const help = await gatehouse.run("access --help");
  const commands = Array.from(help.stdout.matchAll(/^ {2}(\w+) \[options\]/gm), ([, name]) => name);
  t.ok(commands.length >= 8, commands.join());
  for (const name of commands) t.match(document, `access ${name}`);
  const grant = await gatehouse.run("access grant --help");
  for (const [option] of grant.stdout.matchAll(/--(?!config|help)[a-z-]+/g))
    t.match(document, option);
});
