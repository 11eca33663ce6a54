/** The documentation as a site: the Markdown of the repository as it is, with search. */
import { readFileSync } from "node:fs";
import path from "node:path";
import { defineConfig } from "vitepress";

const project = path.join(import.meta.dirname, "../..");
const { homepage } = JSON.parse(readFileSync(path.join(project, "package.json"), "utf8"));
const repository = homepage.replace(/#.*$/, "");

/** The anchors of GitHub, so that links work in both places. */
function slugify(heading: string): string {
  return heading
    .trim()
    .toLowerCase()
    .replace(/[^\p{L}\p{N}_\- ]/gu, "")
    .replaceAll(" ", "-");
}

/** README.md is the index of its directory. Files that are not pages are in the repository. */
function targetOf(link: string, page: string): string {
  if (/^(?:[a-z]+:|#)/.test(link)) return link;
  const [file = "", anchor] = link.split("#");
  const suffix = anchor === undefined ? "" : `#${anchor}`;
  const target = path.posix.join(path.posix.dirname(page), file);
  const isPage = /^(?:docs\/)?[^/]+\.md$/.test(target);
  if (isPage) return file.replace(/README\.md$/, "index.md") + suffix;
  return `${repository}/blob/main/${target}${suffix}`;
}

/** The tables of docs/README.md are the navigation. */
function sidebar() {
  const text = readFileSync(path.join(project, "docs/README.md"), "utf8");
  const sections = text.split(/^## /m).slice(1);
  return sections.flatMap((section) => {
    const rows = section.split("\n").filter((line) => line.startsWith("| ["));
    const links = rows.flatMap((row) => [
      ...(row.split(" | ")[0] ?? "").matchAll(/\[(.+?)\]\((.+?)\)/g),
    ]);
    const items = links.map(([, title = "", link = ""]) => ({
      text: title,
      link: path.posix.join("/docs", link.replace(/\.md/, "")),
    }));
    return items.length === 0 ? [] : [{ text: section.split("\n")[0], items, collapsed: false }];
  });
}

export default defineConfig({
  title: "Gatehouse",
  description: "An authentication and authorization gateway for databases",
  // A copy, because the compiled pages must find Vue above them.
  srcDir: "pages",
  outDir: "built",
  cacheDir: "node_modules/.cache/vitepress",
  rewrites: { "README.md": "index.md", "docs/README.md": "docs/index.md" },
  markdown: {
    anchor: { slugify },
    config(md) {
      md.core.ruler.push("repository links", ({ tokens, env }) => {
        for (const { children } of tokens) {
          for (const token of children ?? []) {
            const link = token.type === "link_open" ? token.attrGet("href") : null;
            if (link !== null) token.attrSet("href", targetOf(link, env.relativePath));
          }
        }
      });
    },
  },
  themeConfig: {
    nav: [
      { text: "Documentation", link: "/docs/" },
      { text: "Changelog", link: "/CHANGELOG" },
      { text: "Security", link: "/SECURITY" },
    ],
    sidebar: sidebar(),
    outline: [2, 3],
    search: { provider: "local" },
    socialLinks: [{ icon: "github", link: repository }],
  },
});
