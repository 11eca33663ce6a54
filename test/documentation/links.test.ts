import { existsSync, readdirSync, readFileSync } from "node:fs";
import path from "node:path";
import t from "tap";

const project = path.join(import.meta.dirname, "../..");
const documents = ["README.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md"].concat(
  readdirSync(path.join(project, "docs"))
    .filter((name) => name.endsWith(".md"))
    .map((name) => `docs/${name}`),
);

function documentText(page: string): string {
  return readFileSync(path.join(project, page), "utf8").replace(/^```.*?^```/gms, "");
}

function anchorOf(heading: string): string {
  return heading
    .trim()
    .toLowerCase()
    .replace(/[^\p{L}\p{N}_\- ]/gu, "")
    .replaceAll(" ", "-");
}

t.test("every link of the documents leads to a file, and to a heading of it", async (t) => {
  let followed = 0;
  for (const page of documents) {
    for (const [, link = ""] of documentText(page).matchAll(/\]\(([^)\s]+)\)/g)) {
      if (/^[a-z]+:/.test(link)) continue;
      const [file = "", anchor] = link.split("#");
      const target = file === "" ? page : path.join(path.dirname(page), file);
      const there = existsSync(path.join(project, target));
      if (!there) t.fail(`${page}: ${link} leads to no file`);
      followed++;
      if (!there || anchor === undefined || !target.endsWith(".md")) continue;
      const headings = documentText(target).matchAll(/^#+ (.*)$/gm);
      const anchors = Array.from(headings, ([, heading = ""]) => anchorOf(heading));
      if (!anchors.includes(anchor)) t.fail(`${page}: ${link} leads to no heading`);
    }
  }
  t.ok(followed > 100, `${followed} links`);
});

t.test("no page is longer than 350 lines, except the reference of queries", async (t) => {
  for (const page of documents.filter((name) => name.startsWith("docs/"))) {
    const lines = readFileSync(path.join(project, page), "utf8").split("\n").length - 1;
    if (page !== "docs/query.md") t.ok(lines <= 350, `${page}: ${lines} lines`);
  }
});

const pages = ["docs/security.md", "test/README.md", "SECURITY.md"];

function textOf(page: string): string {
  return readFileSync(path.join(project, page), "utf8");
}

function section(heading: string): string {
  const parts = pages.flatMap((page) => textOf(page).split(/^## /m));
  return parts.find((part) => part.startsWith(`${heading}\n`)) ?? "";
}

function filesIn(text: string): string[] {
  return [...text.matchAll(/`((?:test|bench|src)\/[^`]+)`/g)].map(([, file = ""]) => file);
}

const promises = [...section("Guarantees").matchAll(/^\d+\. \*\*(.+)\.\*\*/gm)].map(
  ([, promise = ""]) => promise,
);
const tested = section("How each guarantee is tested")
  .split("\n")
  .filter((line) => line.startsWith("| "))
  .slice(2)
  .map((line) => line.slice(2, -2).split(" | "));

t.test("tests are listed for every guarantee of the page on security", async (t) => {
  t.ok(promises.length > 10);
  t.strictSame(
    tested.map(([promise]) => promise),
    promises,
  );
  const isTested = (files: string[]) => files.some((file) => file.endsWith(".test.ts"));
  for (const [promise = "", tests = ""] of tested) t.ok(isTested(filesIn(tests)), promise);
});

t.test("every file that the pages name is there", async (t) => {
  for (const file of pages.map(textOf).flatMap(filesIn)) {
    t.ok(existsSync(path.join(project, file)), file);
  }
});
