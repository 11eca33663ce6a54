import { execFileSync, spawnSync } from "node:child_process";
import { existsSync, readdirSync, readFileSync } from "node:fs";
import path from "node:path";
import t from "tap";
import { parse } from "yaml";
import * as z from "zod";
import { readPackageJson, repositoryOf, withAbsoluteLinks } from "../../scripts/package.ts";
import { checkMetadata, releaseNotes } from "../../scripts/release.ts";
import { findProgram } from "./programs.ts";

const root = path.join(import.meta.dirname, "../..");
const directory = path.join(root, ".github/workflows");

const step = z.looseObject({
  uses: z.string().optional(),
  run: z.string().optional(),
  with: z.record(z.string(), z.unknown()).optional(),
});
const job = z.looseObject({
  uses: z.string().optional(),
  needs: z.union([z.string(), z.array(z.string())]).optional(),
  container: z.string().optional(),
  environment: z.string().optional(),
  "timeout-minutes": z.number().optional(),
  permissions: z.record(z.string(), z.enum(["read", "write"])).optional(),
  steps: z.array(step).default([]),
});
const workflow = z.looseObject({
  permissions: z.strictObject({ contents: z.literal("read") }),
  jobs: z.record(z.string(), job),
});

const workflows = readdirSync(directory).map((name) => {
  const text = readFileSync(path.join(directory, name), "utf8");
  return { ...workflow.parse(parse(text)), name, text };
});

t.test("there are workflows for tests, releases and reviews of the code", async (t) => {
  const names = workflows.map(({ name }) => name);
  t.strictSame(names, ["ci.yml", "codeql.yml", "release.yml", "scorecard.yml"]);
});

for (const { name, text, jobs } of workflows) {
  t.test(`${name} runs pinned actions with few permissions`, async (t) => {
    for (const [, uses = ""] of text.matchAll(/^ *(?:- )?uses: (.*)$/gm)) {
      if (uses.startsWith("./")) t.ok(existsSync(path.join(root, uses)), uses);
      else t.match(uses, /^[\w-]+\/[\w/-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+$/);
    }
    t.notMatch(text, "secrets.", "no token is stored");
    for (const [id, { container, uses, steps, ...job }] of Object.entries(jobs)) {
      if (uses === undefined) t.ok(job["timeout-minutes"], `${id} ends`);
      if (container !== undefined) t.match(container, /@sha256:[0-9a-f]{64}$/);
      for (const { run = "", uses = "", with: input } of steps) {
        // An expression in a script is text of others that the shell runs.
        t.notMatch(run, "${{", `${id}: ${run}`);
        if (uses.startsWith("actions/checkout@")) t.equal(input?.["persist-credentials"], false);
      }
    }
  });
}

t.test("each action has one version in all workflows", async (t) => {
  const versions = new Map<string, Set<string>>();
  for (const { text } of workflows) {
    for (const [, owner = "", version = ""] of text.matchAll(/uses: ([\w-]+\/[\w-]+)\S*@(.*)/g)) {
      versions.set(owner, (versions.get(owner) ?? new Set()).add(version));
    }
  }
  for (const [action, found] of versions) t.equal(found.size, 1, action);
});

t.test("only jobs that publish may write, after the tests and the package's own", async (t) => {
  const release = workflows.find(({ name }) => name === "release.yml");
  const writing = Object.entries(release?.jobs ?? {}).filter(([, { permissions = {} }]) =>
    Object.values(permissions).includes("write"),
  );
  t.strictSame(
    writing.map(([id, { needs, permissions }]) => [id, needs, permissions]),
    [
      ["npm", ["test", "package"], { "id-token": "write" }],
      ["image", ["test", "package"], { contents: "read", packages: "write", "id-token": "write" }],
      ["chart", "image", { contents: "read", packages: "write", "id-token": "write" }],
      ["release", ["npm", "image", "chart"], { contents: "write" }],
    ],
  );
  t.strictSame(release?.jobs.npm?.environment, "npm");
});

t.test("the scripts of the release exist", async (t) => {
  const { scripts } = z
    .object({ scripts: z.record(z.string(), z.string()) })
    .parse(JSON.parse(readFileSync(path.join(root, "package.json"), "utf8")));
  const runs = workflows.flatMap(({ text }) => [...text.matchAll(/npm run (?:--\w+ )?([\w:]+)/g)]);
  t.ok(runs.length > 2);
  for (const [, script = ""] of runs) t.ok(script in scripts, script);
});

t.test("updates are proposed for every manifest", async (t) => {
  const { updates } = z
    .object({
      updates: z.array(
        z.looseObject({
          "package-ecosystem": z.string(),
          directory: z.string().optional(),
          directories: z.array(z.string()).default([]),
        }),
      ),
    })
    .parse(parse(readFileSync(path.join(root, ".github/dependabot.yml"), "utf8")));
  const places = updates.flatMap(({ directory, directories, ...update }) =>
    [...directories, ...(directory === undefined ? [] : [directory])].map(
      (place) => `${update["package-ecosystem"]} ${place}`,
    ),
  );
  const listed = execFileSync(
    "git",
    ["ls-files", "*package.json", "*Dockerfile", "*compose.yaml"],
    {
      cwd: root,
      encoding: "utf8",
    },
  );
  const ecosystems = new Map([
    ["package.json", "npm"],
    ["Dockerfile", "docker"],
    ["compose.yaml", "docker-compose"],
  ]);
  const needed = listed
    .trim()
    .split("\n")
    .map((file) => {
      const { base, dir } = path.parse(`/${file}`);
      return `${ecosystems.get(base)} ${dir}`;
    });
  t.strictSame(places.toSorted(), [...needed, "github-actions /"].toSorted());
});

const actionlint = findProgram("actionlint");
if (actionlint !== undefined) {
  t.test("actionlint finds nothing", async (t) => {
    t.equal(execFileSync(actionlint, { cwd: root, encoding: "utf8" }), "");
  });
}

const manifest = readPackageJson();
const repository = repositoryOf(manifest);

t.test("the version and the repository are the same wherever they are named", async (t) => {
  t.strictSame(checkMetadata({}), []);
  const guide = readFileSync(path.join(root, "CONTRIBUTING.md"), "utf8");
  const [, replaced = ""] = /sed -i 's\/\\bOWNER.* package\.json (.*)/.exec(guide) ?? [];
  const pages = replaced.split(" ");
  t.ok(pages.includes("README.md"), replaced);
  const [owner] = repository.split("/");
  for (const page of pages) {
    const text = readFileSync(path.join(root, page), "utf8");
    for (const [found, named] of text.matchAll(/(?:ghcr\.io|github\.com)\/([\w.-]+)\/[\w/]+/g)) {
      t.equal(named, owner, `${page}: ${found}`);
    }
  }
});

t.test("a release refuses the tag of another version and another repository", async (t) => {
  const tag = { GITHUB_REF_TYPE: "tag", GITHUB_REF_NAME: `v${manifest.version}` };
  t.strictSame(checkMetadata({ ...tag, GITHUB_REPOSITORY: repository }), []);
  t.strictSame(checkMetadata({ ...tag, GITHUB_REF_NAME: "v9.0.0" }), [
    `tag: found v9.0.0; expected v${manifest.version}`,
  ]);
  t.strictSame(checkMetadata({ GITHUB_REPOSITORY: "stranger/gatehouse" }), [
    `package.json: repository: found ${repository}; expected stranger/gatehouse`,
  ]);
});

t.test("a release has the notes of its version", async (t) => {
  const changelog =
    "# Changelog\n\n## [Unreleased]\n\n- c\n\n## [0.2.0] - 2027-01-01\n\n- b\n\n## 0.1.0\n";
  t.equal(releaseNotes(changelog, "0.2.0"), "- b\n");
  t.throws(() => releaseNotes(changelog, "0.3.0"), "CHANGELOG.md: no section for 0.3.0");
  t.throws(() => releaseNotes(changelog, "0.1.0"), "or an empty one");
});

t.test("links become absolute, except in code and within the page", async (t) => {
  const page = [
    "[a](docs/a.md#b) ![b](docs/b.png) [c](#c) [d](https://example.com)",
    "```toml",
    "x = [1](docs/a.md)",
    "```",
    "```mermaid",
    "flowchart LR",
    "```",
    "",
    "[e](LICENSE)",
  ].join("\n");
  t.strictSame(withAbsoluteLinks(page, "owner/name", "1.2.3").split("\n"), [
    "[a](https://github.com/owner/name/blob/v1.2.3/docs/a.md#b) ![b](https://raw.githubusercontent.com/owner/name/v1.2.3/docs/b.png) [c](#c) [d](https://example.com)",
    "```toml",
    "x = [1](docs/a.md)",
    "```",
    "[e](https://github.com/owner/name/blob/v1.2.3/LICENSE)",
  ]);
});

t.test("npm packs no clone", async (t) => {
  const { status, stderr } = spawnSync("npm", ["pack", "--dry-run"], {
    cwd: root,
    encoding: "utf8",
  });
  t.equal(status, 1);
  t.match(stderr, "run `npm run release:check`");
});
