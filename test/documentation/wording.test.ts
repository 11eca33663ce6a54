import { globSync, readFileSync, writeFileSync } from "node:fs";
import path from "node:path";
import t, { type Test } from "tap";
import { projectRoot } from "../kit/process.ts";

/**
 * Counts phrases that make prose hard to read, and long sentences in the docs, against a record that
 * only goes down. `UPDATE_WORDING=1` lowers it. A hit is a sentence to write again, not an error.
 */
const recordFile = path.join(projectRoot, "test/wording.json");
const record: Record<string, number> = JSON.parse(readFileSync(recordFile, "utf8"));

const phrases: Readonly<Record<string, RegExp>> = {
  "whoever: the caller, the user": /\bwho(?:m)?ever\b/gi,
  "nobody, somebody: name the subject": /\b(?:nobody|somebody)\b/gi,
  "anew: again": /\banew\b/gi,
  "for good: permanently": /\bfor good\b/gi,
  "meanwhile: in the meantime": /\bmeanwhile\b/gi,
  "mend: fix": /\bmend(?:s|ed|ing)?\b/gi,
  "told of, is told: receives, is notified": /\b(?:told of|(?:is|are|was|were) told)\b/gi,
  "says of, knows of: describes": /\b(?:says?|said|tells?|known|knows?) of\b/gi,
  "is none: is not one": /\b(?:is|are|was) none\b/gi,
  "goes up: is forwarded": /\b(?:goes?|going|sent|sends?) up\b(?! to date)/gi,
  "taken back: rolled back": /\b(?:takes?|taken|took) back\b/gi,
  "stands in, stands for: is in, means": /\bstands? (?:in|at|behind|beside|for|where|on|with)\b/gi,
  "comes of: results from": /\b(?:comes?|came) of\b/gi,
  "behind it: after it": /\bbehind (?:it|them|another|the other)\b/gi,
  "is over: has ended": /\b(?:is|are|was) over(?![ -](?:\d|the (?:limit|bound)))\b/gi,
  "alone: only":
    /\b(?:that|those|these|it|one|them|user|gateway|worker|server|name|file|files) alone\b/gi,
  "headless clause: name the noun":
    /(?:^|[.:;] +)(?:What|Who|Whom|Whose) (?:is|are|was|were|has|have|it|they|a|an|the|comes?|may|can|must)\b(?![^.?!]*\?)/g,
};

/** Comments and texts of a source file, or the lines of another. */
function proseOf(file: string): string[] {
  const lines = readFileSync(path.join(projectRoot, file), "utf8").split("\n");
  if (!file.endsWith(".ts")) return lines;
  const prose = /(?:^\s*\/?\*+\s?|\/\/\s?)(.*)$|"((?:[^"\\]|\\.)*)"|`([^`]*)`/g;
  return lines.map((line) =>
    Array.from(line.matchAll(prose), (match) => match.slice(1).join("")).join(" . "),
  );
}

function filesOf(...patterns: string[]): string[] {
  const exclude = ["**/node_modules/**", "test/documentation/wording.test.ts"];
  return globSync(patterns, { cwd: projectRoot, exclude });
}

function check(t: Test, name: string, found: readonly string[]): void {
  const most = record[name] ?? 0;
  if (process.env.UPDATE_WORDING === "1" && found.length < most) {
    record[name] = found.length;
    writeFileSync(recordFile, `${JSON.stringify(record, undefined, 2)}\n`);
  }
  t.ok(found.length <= most, `${name}: ${found.length}, at most ${most}`, { found });
}

const parts = {
  "phrases in docs": filesOf("*.md", "docs/*.md", "gateway.toml.example"),
  "phrases in src": filesOf("src/**/*.ts"),
  "phrases in test": filesOf("test/**/*.ts"),
  "phrases in tools": filesOf("generate/**/*.ts", "bench/**/*.ts", "deploy/**/*.{yml,yaml,md,ts}"),
};

for (const [name, files] of Object.entries(parts)) {
  t.test(`${name} become fewer`, async (t) => {
    const found = files.flatMap((file) =>
      proseOf(file).flatMap((line, at) =>
        Object.entries(phrases)
          .filter(([, pattern]) => line.search(pattern) !== -1)
          .map(([phrase]) => `${file}:${at + 1} ${phrase}`),
      ),
    );
    check(t, name, found);
  });
}

t.test("few sentences of the docs have more than 30 words", async (t) => {
  const sentences = filesOf("README.md", "docs/*.md").flatMap((file) => {
    const text = readFileSync(path.join(projectRoot, file), "utf8")
      .replace(/^(```|~~~)[\s\S]*?^\1/gm, "")
      .replace(/^\|[-| :]+\|$/gm, "");
    return text
      .split(/\n\s*\n|\n(?=[-*|#>]|\d+\. )|[.?!](?=\s)| \| /)
      .map((sentence) => sentence.replace(/`[^`]*`/g, "code").replace(/\]\([^)]*\)/g, "]"))
      .map((sentence) => ({ file, words: sentence.split(/\s+/).filter((word) => /\w/.test(word)) }))
      .filter(({ words }) => words.length > 3);
  });
  const long = sentences.filter(({ words }) => words.length > 30);
  t.comment(`${long.length} of ${sentences.length}`);
  t.ok(long.length <= sentences.length * 0.04, "at most 4 %", {
    long: long.map(({ file, words }) => `${file}: ${words.join(" ")}`),
  });
});
