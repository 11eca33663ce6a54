/** The project's own TypeScript compiler, for programs that tests write. */
import { spawn } from "node:child_process";
import { once } from "node:events";
import { writeFileSync } from "node:fs";
import path from "node:path";
import { text } from "node:stream/consumers";
import type { Test } from "tap";
import { temporaryHome } from "./gateway.ts";
import { nodeCommand } from "./node.ts";

const compiler = path.join(import.meta.dirname, "../../node_modules/typescript/bin/tsc");
const typeRoots = [path.join(import.meta.dirname, "../../node_modules/@types")];
const compilerOptions = {
  strict: true,
  exactOptionalPropertyTypes: true,
  noUncheckedIndexedAccess: true,
  module: "nodenext",
  target: "es2024",
  lib: ["es2024", "dom"],
  types: ["node"],
  typeRoots,
  noEmit: true,
  allowImportingTsExtensions: true,
};

/** Writes files by name and compiles them in strict mode. @returns the compiler's errors */
export async function compile(
  t: Test,
  files: Readonly<Record<string, string>>,
  directory = temporaryHome(t),
): Promise<string> {
  const own = {
    "package.json": { private: true, type: "module" },
    "tsconfig.json": { compilerOptions, files: Object.keys(files) },
  };
  for (const [name, content] of Object.entries(own)) {
    writeFileSync(path.join(directory, name), JSON.stringify(content));
  }
  for (const [name, content] of Object.entries(files)) {
    writeFileSync(path.join(directory, name), content);
  }
  const [node, flags] = nodeCommand([compiler, "--pretty", "false"]);
  const child = spawn(node, flags, { cwd: directory });
  const closed = once(child, "close");
  const [output, errors] = await Promise.all([text(child.stdout), text(child.stderr)]);
  await closed;
  return errors + output;
}
