/** What a stranger who wants to use or change the project finds. */
import { spawnSync } from "node:child_process";
import { createHash } from "node:crypto";
import { readFileSync } from "node:fs";
import path from "node:path";
import t from "tap";
import { parse } from "yaml";
import * as z from "zod";

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
