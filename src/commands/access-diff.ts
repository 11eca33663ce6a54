/** `gatehouse access diff`: who gains and loses what. */
import { isDeepStrictEqual } from "node:util";
import { diffSnapshots, type EffectChange, effectDiff } from "../access/diff.ts";
import type { Snapshot } from "../access/snapshot.ts";
import { readNamedAccess } from "./access-queries.ts";
import type { CommonOptions } from "./options.ts";
import { print, printJson } from "./output.ts";

function written(value: unknown): string {
  return value === undefined ? "none" : JSON.stringify(value);
}

/** A change as lines: what is gained, what is lost, which limits are others. */
function linesOf({ username, place, gains, loses, limits, before, after }: EffectChange): string[] {
  const by = `${before.role} to ${after.role}`;
  const lines: string[] = [];
  if (gains.length > 0) lines.push(`${username} gains ${gains.join(", ")} on ${place} (${by})`);
  if (loses.length > 0) lines.push(`${username} loses ${loses.join(", ")} on ${place} (${by})`);
  for (const key of gains.length > 0 ? Object.keys(after.limits) : limits) {
    if (isDeepStrictEqual(before.limits[key], after.limits[key])) continue;
    const values = `${written(before.limits[key])} to ${written(after.limits[key])}`;
    lines.push(`${username} on ${place}: ${key} ${values}`);
  }
  return lines;
}

/** Prints who gains and loses what between two states. */
export function printDifference(before: Snapshot, after: Snapshot, json?: true): void {
  const access = [...effectDiff(before, after, Date.now())];
  const { usersChanged, boundariesAdded, boundariesRemoved } = diffSnapshots(before, after);
  const attributesOf = ({ users }: Snapshot, name: string) => users.get(name)?.attributes;
  const attributesChanged = usersChanged.filter(
    (name) => !isDeepStrictEqual(attributesOf(before, name), attributesOf(after, name)),
  );
  if (json) {
    printJson({ access, attributesChanged, boundariesAdded, boundariesRemoved });
    return;
  }
  const lines = [
    ...access.flatMap(linesOf),
    ...attributesChanged.map((name) => `${name}: other attributes, which row filters may refer to`),
    ...boundariesRemoved.map((name) => `boundary removed: ${name}`),
    ...boundariesAdded.map((name) => `boundary added: ${name}`),
  ];
  print(lines.length === 0 ? "nobody gains or loses anything" : lines.join("\n"));
}

/** `access diff`. */
export async function compareAccess(old: string, current: string, { json }: CommonOptions) {
  const [before, after] = await Promise.all([readNamedAccess(old), readNamedAccess(current)]);
  printDifference(before, after, json);
}
