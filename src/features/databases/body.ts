import { Refusal } from "../../core/base/refusal.ts";
import { quoteName } from "../../core/json/fault.ts";
import { requireOneReading } from "../../core/json/tape.ts";
import type { Json, JsonObject } from "./preset.ts";

/**
 * Parses JSON that every parser reads alike: UTF-8, no key twice, at most 64 levels deep.
 *
 * @throws JsonFault
 */
export function readJson(bytes: Buffer): Json {
  requireOneReading(bytes);
  return JSON.parse(bytes.toString());
}

/** Checks a line as `readJson` does, without parsing it. */
export const checkLine: (bytes: Buffer) => void = requireOneReading;
export const readLine: (bytes: Buffer) => Json = readJson;

/**
 * @param where the object is, for the message: `the action`
 * @throws Refusal `unknown_member` for a member that is not listed
 */
export function requireMembers(
  object: JsonObject,
  allowed: ReadonlySet<string>,
  where = "the body",
): void {
  for (const name in object) {
    if (allowed.has(name)) continue;
    const list = [...allowed].join(", ") || "none";
    const message = `Unknown member ${quoteName(name)} in ${where}; allowed: ${list}`;
    throw new Refusal("unknown_member", { message });
  }
}

/** @throws Refusal `bad_request` */
export function badRequest(problem: string): Refusal {
  return new Refusal("bad_request", { message: `Bad request: ${problem}` });
}
