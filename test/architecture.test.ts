import { globSync, readFileSync } from "node:fs";
import path from "node:path";
import t from "tap";
import { projectRoot } from "./kit/process.ts";

/** Counts as one file: its conditions contain Selects, and its Selects contain conditions. */
const exception = "src/query";

function nodeOf(file: string): string {
  return path.dirname(file) === exception ? exception : file;
}

/** Imports of types count, too. */
const imports = new Map<string, Set<string>>();
for (const file of globSync("src/**/*.ts", { cwd: projectRoot })) {
  const text = readFileSync(path.join(projectRoot, file), "utf8");
  const from = imports.get(nodeOf(file)) ?? new Set();
  imports.set(nodeOf(file), from);
  for (const [, to = ""] of text.matchAll(/\b(?:from|import\()\s*"(\.[^"]+\.ts)"/g)) {
    from.add(nodeOf(path.join(path.dirname(file), to)));
  }
}
imports.get(exception)?.delete(exception);

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
