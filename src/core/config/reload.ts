import { isDeepStrictEqual } from "node:util";
import { followFiles } from "../base/files/watch.ts";
import { renderValue, type ValuePath, valueAt } from "../base/toml.ts";
import { isLive, type SchemaNode, type SchemaTable, schemaTables } from "./issues.ts";
import {
  deepFrozen,
  defaultFiles,
  type LoadedConfiguration,
  type LoadOptions,
  loadConfiguration,
} from "./load.ts";
import { ConfigurationError, type Problem } from "./problem.ts";
import type { Configuration } from "./schema.ts";

interface ConfigurationChange {
  readonly path: ValuePath;
  /** False if the change requires a restart. */
  readonly isLive: boolean;
  readonly text: string;
}

/** A key, or an array of tables, which counts as one key. */
interface Key {
  readonly path: ValuePath;
  readonly isLive: boolean;
  readonly node: SchemaNode;
}

function tableKeys({ name, isArray, node, isLive: isLiveTable, keys }: SchemaTable): Key[] {
  const path = name.split(".");
  if (isArray) return [{ path, isLive: isLiveTable, node }];
  return keys.map(([key, node]) => ({ path: [...path, key], isLive: isLive(node), node }));
}

function missingFrom(other: unknown, one: unknown): string[] {
  const others = Array.isArray(other) ? other : [];
  return (Array.isArray(one) ? one : [])
    .filter((element) => !others.some((known) => isDeepStrictEqual(known, element)))
    .map(renderValue);
}

function describeChange({ path, node, isLive }: Key, before: unknown, after: unknown): string {
  const key = path.join(".");
  // A change that requires a restart is not in force, so its name is enough.
  if (!isLive || node.writeOnly === true) return key;
  if (!Array.isArray(after)) return `${key}: ${renderValue(before)} -> ${renderValue(after)}`;
  const added = missingFrom(before, after).map((element) => `+ ${element}`);
  const removed = missingFrom(after, before).map((element) => `- ${element}`);
  return `${key}: ${[...removed, ...added].join(", ") || "different order"}`;
}

function changesBetween(running: Configuration, read: Configuration): ConfigurationChange[] {
  if (isDeepStrictEqual(running, read)) return [];
  return schemaTables()
    .flatMap(tableKeys)
    .flatMap((key) => {
      const before = valueAt(running, key.path);
      const after = valueAt(read, key.path);
      if (isDeepStrictEqual(before, after)) return [];
      return [{ path: key.path, isLive: key.isLive, text: describeChange(key, before, after) }];
    });
}

function withLiveChanges(
  running: Configuration,
  read: Configuration,
  changes: readonly ConfigurationChange[],
): Configuration {
  const next = structuredClone(running);
  for (const { path } of changes.filter(({ isLive }) => isLive)) {
    const table = valueAt(next, path.slice(0, -1));
    const [key] = path.slice(-1);
    if (typeof table !== "object" || table === null || key === undefined) continue;
    Reflect.set(table, key, valueAt(read, path));
  }
  return deepFrozen(next);
}

export type ConfigurationReload =
  | { readonly kind: "loaded"; readonly changes: readonly ConfigurationChange[] }
  /** The gateway was started without a file, and a file exists now. */
  | { readonly kind: "found"; readonly file: string }
  | { readonly kind: "refused"; readonly problems: readonly Problem[] };

/** @throws ConfigurationError also if a different file would be used now */
function readAgain({ file }: LoadedConfiguration, options: LoadOptions): LoadedConfiguration {
  const read = loadConfiguration(options);
  if (read.file === file || file === undefined) return read;
  const found = read.file ?? "no file";
  const reason = [
    `no longer used: after a restart, the gateway would use ${found}`,
    ...read.warnings,
  ].join("; ");
  throw new ConfigurationError([{ source: file, reason }]);
}

/**
 * Reloads the configuration whenever its file has changed. If anything in the file is wrong, the
 * last good state stays.
 *
 * @param hooks.onReload called after each reload that found a change or was refused
 */
export function openLiveConfiguration(
  loaded: LoadedConfiguration,
  options: LoadOptions,
  hooks: {
    apply(configuration: Configuration): Promise<void>;
    onReload(reload: ConfigurationReload): void;
  },
) {
  let running = loaded.configuration;
  let isRefused = false;

  async function load(): Promise<void> {
    const read = readAgain(loaded, options);
    if (read.file !== undefined && loaded.file === undefined) {
      hooks.onReload({ kind: "found", file: read.file });
      return;
    }
    const changes = changesBetween(running, read.configuration);
    if (changes.length === 0 && !isRefused) return;
    if (changes.some(({ isLive }) => isLive)) {
      running = withLiveChanges(running, read.configuration, changes);
      await hooks.apply(running);
    }
    isRefused = false;
    hooks.onReload({ kind: "loaded", changes });
  }

  const watched = loaded.file === undefined ? new Set(defaultFiles(options)) : [loaded.file];
  return followFiles(watched, load, (error) => {
    if (!(error instanceof ConfigurationError)) throw error;
    isRefused = true;
    hooks.onReload({ kind: "refused", problems: error.problems });
  });
}
