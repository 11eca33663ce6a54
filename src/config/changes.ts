/** What differs between the configuration in force and one that was read, and the way to it. */
import { isDeepStrictEqual } from "node:util";
import { type ValuePath, valueAt } from "../toml/outline.ts";
import { renderValue } from "../toml/values.ts";
import { deepFrozen } from "./load.ts";
import type { Configuration } from "./schema.ts";
import { isLive, type SchemaNode, type SchemaTable, schemaTables } from "./schema-node.ts";

/** A key that has another value now. */
export interface ConfigurationChange {
  readonly path: ValuePath;
  /** False if it takes a restart. */
  readonly isLive: boolean;
  /** The key and what became of it, never a secret. */
  readonly text: string;
}

/** A key, or an array of tables, which counts as one. */
interface Key {
  readonly path: ValuePath;
  readonly isLive: boolean;
  readonly node: SchemaNode;
}

function keysOf({ name, isArray, node, isLive: isLiveTable, keys }: SchemaTable): Key[] {
  const path = name.split(".");
  if (isArray) return [{ path, isLive: isLiveTable, node }];
  return keys.map(([key, node]) => ({ path: [...path, key], isLive: isLive(node), node }));
}

function elementsOf(value: unknown): readonly unknown[] {
  return Array.isArray(value) ? value : [];
}

/** The elements of `one` that `other` does not have, as they are written. */
function missingFrom(other: unknown, one: unknown): string[] {
  const others = elementsOf(other);
  return elementsOf(one)
    .filter((element) => !others.some((known) => isDeepStrictEqual(known, element)))
    .map(renderValue);
}

function textOf({ path, node, isLive }: Key, before: unknown, after: unknown): string {
  const key = path.join(".");
  // What takes a restart is not in force: there is no use in saying more than its name.
  if (!isLive || node.writeOnly === true) return key;
  if (!Array.isArray(after)) return `${key}: ${renderValue(before)} -> ${renderValue(after)}`;
  const added = missingFrom(before, after).map((element) => `+ ${element}`);
  const removed = missingFrom(after, before).map((element) => `- ${element}`);
  return `${key}: ${[...removed, ...added].join(", ") || "another order"}`;
}

/** Every key that differs between two configurations. */
export function changesBetween(running: Configuration, read: Configuration): ConfigurationChange[] {
  return schemaTables()
    .flatMap(keysOf)
    .flatMap((key) => {
      const [before, after] = [valueAt(running, key.path), valueAt(read, key.path)];
      if (isDeepStrictEqual(before, after)) return [];
      const { path, isLive } = key;
      return [{ path, isLive, text: textOf(key, before, after) }];
    });
}

/** The running configuration with those changes of `read` that need no restart. */
export function withLiveChanges(
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
