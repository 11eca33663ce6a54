import { writeFileSync } from "node:fs";
import { join } from "node:path";
import type { Test } from "tap";
import {
  type LoadedConfiguration,
  type LoadOptions,
  loadConfiguration,
} from "../../src/core/config/load.ts";
import { ConfigurationError } from "../../src/core/config/problem.ts";
import { temporaryHome } from "../kit/gateway.ts";

export function load(
  t: Test,
  text: string,
  options: Partial<LoadOptions> = {},
): LoadedConfiguration & { directory: string } {
  const directory = temporaryHome(t);
  writeFileSync(join(directory, "gateway.toml"), text, { mode: 0o600 });
  const env = { GATEHOUSE_HOME: join(directory, "home") };
  return {
    ...loadConfiguration({ config: "gateway.toml", cwd: directory, env, ...options }),
    directory,
  };
}

export function problemsOf(t: Test, text: string, options: Partial<LoadOptions> = {}): string[] {
  return linesOf(() => load(t, text, options)).map((line) =>
    line.replace(/^.*?(?=gateway\.toml)|(?<=ENOENT: )\/.*\//g, ""),
  );
}

export function linesOf(act: () => unknown): string[] {
  try {
    act();
  } catch (error) {
    if (error instanceof ConfigurationError) return error.message.split("\n");
    throw error;
  }
  return [];
}
