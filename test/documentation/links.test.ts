import { existsSync, readdirSync, readFileSync } from "node:fs";
import path from "node:path";
import t from "tap";

const root = path.join(import.meta.dirname, "../..");
const pages = ["README.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md"].concat(
  readdirSync(path.join(root, "docs"))
    .filter((name) => name.endsWith(".md"))
    .map((name) => `docs/${name}`),
);

function textOf(page: string): string {
  return readFileSync(path.join(root, page), "utf8").replace(/^```.*?^```/gms, "");
}

/** What a heading is linked to by, as Markdown on the web has it. */
function anchorOf(heading: string): string {
  return heading
    .trim()
    .toLowerCase()
    .replace(/[^\p{L}\p{N}_\- ]/gu, "")
    .replaceAll(" ", "-");
}

t.test("every link of the documents leads to a file, and to a heading of it", async (t) => {
  let followed = 0;
  for (const page of pages) {
    for (const [, link = ""] of textOf(page).matchAll(/\]\(([^)\s]+)\)/g)) {
      if (/^[a-z]+:/.test(link)) continue;
      const [file = "", anchor] = link.split("#");
      const target = file === "" ? page : path.join(path.dirname(page), file);
      const there = existsSync(path.join(root, target));
      if (!there) t.fail(`${page}: ${link} leads to no file`);
      followed++;
      if (!there || anchor === undefined || !target.endsWith(".md")) continue;
      const headings = textOf(target).matchAll(/^#+ (.*)$/gm);
      const anchors = Array.from(headings, ([, heading = ""]) => anchorOf(heading));
      if (!anchors.includes(anchor)) t.fail(`${page}: ${link} leads to no heading`);
    }
  }
  t.ok(followed > 100, `${followed} links`);
});
