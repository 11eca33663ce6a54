import { type LoadedConfiguration, loadConfiguration } from "../core/config/load.ts";
import type { CommonOptions } from "./options.ts";
import { warn } from "./output.ts";

export function searchOptions({ config, host, port }: CommonOptions) {
  return { config, host, port, env: process.env, cwd: process.cwd() };
}

export function loadFor(options: CommonOptions): LoadedConfiguration {
  const loaded = loadConfiguration(searchOptions(options));
  for (const warning of loaded.warnings) warn(warning);
  return loaded;
}
