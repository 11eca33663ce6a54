import { runCooperatively } from "../../cooperative-scheduling.ts";
import { quoteName } from "../../json/fault.ts";
import { visitJudgedMembers } from "../../json/members.ts";
import type { batchKey } from "../../query/grammar.ts";
import type { OperationName } from "../../query/operations.ts";
import { QueryRefused } from "../../query/refusal.ts";
import { meantField } from "../../query/synonyms.ts";
import { askWhether } from "../../suggestion.ts";

/** The members of these names among a call's arguments, as they were sent. */
export async function argumentsNamed(
  args: Buffer,
  names: readonly string[],
): Promise<ReadonlyMap<string, Buffer>> {
  const found = new Map<string, Buffer>();
  const visit = (key: string, value: Buffer): void => {
    if (names.includes(key)) found.set(key, value);
  };
  await runCooperatively(visitJudgedMembers(args, visit));
  return found;
}

/**
 * The query that a call asks for, made of the very bytes of its arguments, so that no number is
 * ever rounded on the way. The grammar is judged by whoever is asked.
 */
export function queryOf(
  operation: OperationName | typeof batchKey,
  ...args: readonly Buffer[]
): Buffer {
  return Buffer.concat([Buffer.from(`{"${operation}":`), ...args, Buffer.from("}")]);
}

/** A count of rows among the arguments; undefined if it is left out, or refused by the grammar. */
export function countIn(value: Buffer | undefined): number | undefined {
  if (value === undefined || value.length > 16) return undefined;
  const digits = value.toString("latin1");
  return /^[0-9]+$/.test(digits) ? Number(digits) : undefined;
}

/** The arguments with one more member in front. */
export function withMember(args: Buffer, member: string): Buffer[] {
  const rest = args.subarray(1);
  const isEmpty = /^\s*\}/.test(rest.toString("latin1", 0, 64));
  return [Buffer.from(`{${member}${isEmpty ? "" : ","}`), rest];
}

/** The arguments of a select as they go up, and what of its answer is shown. */
interface LimitedSelect {
  readonly query: Buffer[];
  /** Rows that are shown. */
  readonly most: number;
  /** True if no more may be asked for, so that as many as are shown may not be all. */
  readonly isCapped: boolean;
}

/**
 * The arguments of a select that asks for one row more than it is to show, by which one that was
 * cut is told from one that was not.
 *
 * @param limit the limit among the arguments, a part of them
 * @param allowed rows that may be asked for
 */
export function withRowLimit(
  args: Buffer,
  limit: Buffer | undefined,
  rowLimit: number,
  allowed = Number.POSITIVE_INFINITY,
): LimitedSelect {
  if (limit === undefined) {
    const most = Math.min(rowLimit, allowed);
    const asked = Math.min(most + 1, allowed);
    return { query: withMember(args, `"limit":${asked}`), most, isCapped: asked === most };
  }
  const said = countIn(limit);
  // What is no count, or too high, is left to others to refuse.
  if (said === undefined || said > allowed)
    return { query: [args], most: rowLimit, isCapped: false };
  const most = Math.min(said, rowLimit);
  const asked = Math.min(most + 1, allowed);
  const at = limit.byteOffset - args.byteOffset;
  const past = args.subarray(at + limit.length);
  const query = [args.subarray(0, at), Buffer.from(String(asked)), past];
  return { query, most, isCapped: asked === most };
}

/**
 * The members of a call's arguments, of which there are these and no others.
 *
 * @throws QueryRefused `unknown_field`, or `missing_field` for one of `needed`
 */
export async function requireFields(
  args: Buffer,
  allowed: readonly string[],
  needed: readonly string[] = [],
): Promise<ReadonlyMap<string, Buffer>> {
  const found = new Map<string, Buffer>();
  const location = { path: "", offset: 0 };
  const visit = (key: string, value: Buffer): void => {
    if (!allowed.includes(key)) {
      const meant = askWhether(meantField(key, allowed));
      const problem = `the field ${quoteName(key)} is unknown; allowed: ${allowed.join(", ")}${meant}`;
      throw new QueryRefused("unknown_field", problem, location);
    }
    found.set(key, value);
  };
  await runCooperatively(visitJudgedMembers(args, visit));
  const missing = needed.find((name) => !found.has(name));
  if (missing === undefined) return found;
  const problem = `the field ${quoteName(missing)} is left out; required: ${needed.join(", ")}`;
  throw new QueryRefused("missing_field", problem, location);
}
