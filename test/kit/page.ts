import { readFileSync } from "node:fs";
import path from "node:path";
import { projectRoot } from "./process.ts";

/** A page of the docs whose code and tables a test runs. */
export function readPage(name: string) {
  const content = readFileSync(path.join(projectRoot, "docs", name), "utf8");
  const blocks = Array.from(
    content.matchAll(/^```(\w+)\n(.*?)^```$/gms),
    ([, language = "", code = ""]) => ({ language, code }),
  );
  const toml = blocks.filter(({ language }) => language === "toml").map(({ code }) => code);
  return {
    content,
    sh: blocks.filter(({ language }) => language === "sh").map(({ code }) => code),
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
