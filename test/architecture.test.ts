import { globSync, readFileSync } from "node:fs";
import path from "node:path";
import t from "tap";
import { projectRoot } from "./kit/process.ts";

/** Imports of each file of the source, those of types included. */
const imports = new Map<string, ReadonlySet<string>>();
for (const file of globSync("**/*.ts", { cwd: path.join(projectRoot, "src") })) {
  const text = readFileSync(path.join(projectRoot, "src", file), "utf8");
  const found = text.matchAll(/\b(?:from|import\()\s*"(\.[^"]+\.ts)"/g);
  const named = Array.from(found, ([, to = ""]) => path.join(path.dirname(file), to));
  imports.set(file, new Set(named));
}

/** What each folder may import beside itself. */
const below: Readonly<Record<string, readonly string[]>> = {
  core: [],
  engine: ["core"],
  features: ["core", "engine"],
  app: ["core", "engine", "features"],
  cli: ["core", "engine", "features", "app"],
};

/** What features import of each other and of `app`. Reasons are in docs/architecture.md. */
const exceptions: Readonly<Record<string, readonly string[]>> = {
  approvals: ["store"],
  console: ["approvals", "oauth", "store", "start.ts"],
  mcp: ["issuers", "oauth"],
  oauth: ["issuers"],
  store: ["approvals", "mcp", "oauth"],
  workers: ["console", "open-gateway.ts", "shared.ts", "start.ts"],
};

function isAllowed(from: string, to: string): boolean {
  const [folder = "", part = ""] = from.split("/");
  const [other = "", otherPart = ""] = to.split("/");
  if (below[folder]?.includes(other)) return true;
  const isSame = folder === other && (folder !== "features" || part === otherPart);
  return isSame || (folder === "features" && exceptions[part]?.includes(otherPart) === true);
}

t.test("the core imports nothing else, the engine the core, features both", async (t) => {
  const wrong = [...imports].flatMap(([from, named]) =>
    [...named].filter((to) => !isAllowed(from, to)).map((to) => `${from} imports ${to}`),
  );
  t.same(wrong, []);
});

t.test("no file of the source imports itself through others", async (t) => {
  const done = new Set<string>();
  const circles: string[] = [];
  function follow(file: string, way: readonly string[]): void {
    const since = way.indexOf(file);
    if (since !== -1) circles.push([...way.slice(since), file].join(" -> "));
    if (since !== -1 || done.has(file)) return;
    for (const next of imports.get(file) ?? []) follow(next, [...way, file]);
    done.add(file);
  }
  for (const file of imports.keys()) follow(file, []);
  t.same(circles, []);
});

t.test("no literal is spread into another literal of its kind", async (t) => {
  const wrong = globSync("{src,test,bench}/**/*.{ts,js}", { cwd: projectRoot })
    .filter((file) => !file.includes("node_modules"))
    .filter((file) => {
      const text = readFileSync(path.join(projectRoot, file), "utf8");
      return /^\s*\.\.\.(?:\{[^}]*\}|\[[^\]]*\]),?$(?!\n\s*\.\w)/m.test(text);
    });
  t.same(wrong, []);
});
