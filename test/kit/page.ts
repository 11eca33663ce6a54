import { readFileSync } from "node:fs";
import path from "node:path";
import { projectRoot } from "./process.ts";

/** The fenced blocks of a text. */
export function blocksOf(text: string): { language: string; code: string }[] {
  const found = text.matchAll(/^```(\w+)\n(.*?)^```$/gms);
  return Array.from(found, ([, language = "", code = ""]) => ({ language, code }));
}

/** The fenced blocks of a text that are in one language. */
export function codeIn(text: string, language: string): string[] {
  return blocksOf(text).flatMap((block) => (block.language === language ? [block.code] : []));
}

/** The part of a text under a heading of the second level. */
export function sectionOf(text: string, heading: string): string {
  return text.split(/^## /m).find((part) => part.startsWith(`${heading}\n`)) ?? "";
}

/** A page of the docs whose code and tables a test runs. */
export function readPage(name: string) {
  const content = readFileSync(path.join(projectRoot, "docs", name), "utf8");
  const toml = codeIn(content, "toml");
  return {
    content,
    /** Its blocks in one language. */
    code: (language: string) => codeIn(content, language),
    /** Blocks for gateway.toml, in order. */
    configuration: toml.filter((code) => code.startsWith("[[issuers]]")),
    login: toml.find((code) => code.startsWith("[issuers.login]")) ?? "",
    introspection: toml.find((code) => code.startsWith("[issuers.introspection]")) ?? "",
    /** Blocks for the access file, as one text. */
    access: toml.filter((code) => /^\[\[(?:acl|groups)\]\]/.test(code)).join("\n"),
    /** Rows of the table with these column names, without the marks of code. */
    rows(...names: string[]): string[][] {
      const lines = content.split("\n").map((line) => line.trim());
      const at = lines.indexOf(`| ${names.join(" | ")} |`);
      if (at === -1) throw new Error(`${name} has no table ${names.join(", ")}`);
      const end = lines.findIndex((line, row) => row > at && !line.startsWith("|"));
      return lines
        .slice(at + 2, end === -1 ? undefined : end)
        .map((line) => line.slice(2, -2).replaceAll("`", "").split(" | "));
    },
  };
}
