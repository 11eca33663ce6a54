import { spawnSync } from "node:child_process";
import { readFileSync } from "node:fs";
import path from "node:path";
import t from "tap";
import { readPackageJson, repositoryOf, withAbsoluteLinks } from "../../scripts/package.ts";
import { checkMetadata, releaseNotes } from "../../scripts/release.ts";

const root = path.join(import.meta.dirname, "../..");
const manifest = readPackageJson();
const repository = repositoryOf(manifest);

t.test("the version and the repository are the same wherever they are named", async (t) => {
  t.strictSame(checkMetadata({}), []);
  const pages = ["SECURITY.md", "docs/install.md", "deploy/Dockerfile", "deploy/compose.yaml"];
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
