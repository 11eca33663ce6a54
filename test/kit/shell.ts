import { spawn } from "node:child_process";
import { mkdirSync, writeFileSync } from "node:fs";
import path from "node:path";
import { text } from "node:stream/consumers";
import { PATIENCE_MS } from "./eventually.ts";
import type { TestGateway } from "./gateway.ts";
import { cleanEnvironment, gatehouseCommand } from "./process.ts";

/**
 * Runs commands of the docs with `gatehouse` on the path, and with this gateway in place of the one
 * that the docs name. @returns what they print
 */
export async function runInShell(
  { home, url }: Pick<TestGateway, "home" | "url">,
  code: string,
  variables: Readonly<Record<string, string>>,
): Promise<string> {
  const programs = path.join(home, "programs");
  mkdirSync(programs, { recursive: true });
  const [program, flags] = gatehouseCommand([]);
  const command = [program, ...flags].map((word) => `'${word}'`).join(" ");
  const script = `#!/bin/sh\nexec ${command} "$@"\n`;
  writeFileSync(path.join(programs, "gatehouse"), script, { mode: 0o700 });
  const shell = spawn("bash", ["-c", code.replaceAll("https://gate.example.com", url)], {
    env: cleanEnvironment(home, { ...variables, PATH: `${programs}:${process.env.PATH}` }),
    // Several commands, each of which may take long on a busy machine.
    timeout: 5 * PATIENCE_MS,
  });
  const [stdout, stderr] = await Promise.all([text(shell.stdout), text(shell.stderr)]);
  return stdout + stderr;
}
