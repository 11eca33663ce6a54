import { existsSync, readFileSync } from "node:fs";
import path from "node:path";
import t from "tap";

const project = path.join(import.meta.dirname, "../..");
const pages = ["docs/security.md", "SECURITY.md"];

function textOf(page: string): string {
  return readFileSync(path.join(project, page), "utf8");
}

/** What stands under a heading of the second level. */
function section(heading: string): string {
  const parts = textOf("docs/security.md").split(/^## /m);
  return parts.find((part) => part.startsWith(`${heading}\n`)) ?? "";
}

/** The paths among what is set as code. */
function filesIn(text: string): string[] {
  return [...text.matchAll(/`((?:test|bench|src)\/[^`]+)`/g)].map(([, file = ""]) => file);
}

/** The identifier that a heading gets where the page is shown. */
function anchorOf(heading: string): string {
  return heading
    .toLowerCase()
    .replace(/[^\w -]/g, "")
    .replaceAll(" ", "-");
}

const promises = [...section("What it promises").matchAll(/^\d+\. \*\*(.+)\.\*\*/gm)].map(
  ([, promise = ""]) => promise,
);
const tested = section("How each promise is tested")
  .split("\n")
  .filter((line) => line.startsWith("| "))
  .slice(2)
  .map((line) => line.slice(2, -2).split(" | "));

t.test("every promise has its tests, and nothing else is said to be tested", async (t) => {
  t.ok(promises.length > 10);
  t.strictSame(
    tested.map(([promise]) => promise),
    promises,
  );
  for (const [promise = "", tests = ""] of tested) {
    t.ok(
      filesIn(tests).some((file) => file.endsWith(".test.ts")),
      promise,
    );
  }
});

t.test("every file that the pages name is there", async (t) => {
  for (const file of pages.map(textOf).flatMap(filesIn)) {
    t.ok(existsSync(path.join(project, file)), file);
  }
});

t.test("every link of the pages leads somewhere", async (t) => {
  for (const page of pages) {
    for (const [, target = ""] of textOf(page).matchAll(/\]\(([^)]+)\)/g)) {
      const [file = "", anchor] = target.split("#");
      const linked = file === "" ? page : path.join(path.dirname(page), file);
      t.ok(existsSync(path.join(project, linked)), target);
      if (anchor === undefined) continue;
      const headings = [...textOf(linked).matchAll(/^#+ (.+)$/gm)].map(([, text = ""]) => text);
      t.ok(headings.map(anchorOf).includes(anchor), target);
    }
  }
});
