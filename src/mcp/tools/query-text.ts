import type { OperationName } from "../../query/operations.ts";
import { inSlices } from "../../slices.ts";
import { visitJudgedMembers } from "../strict-json.ts";

/** The members of these names among a call's arguments, as they were sent. */
export async function argumentsNamed(
  args: Buffer,
  names: readonly string[],
): Promise<ReadonlyMap<string, Buffer>> {
  const found = new Map<string, Buffer>();
  const visit = (key: string, value: Buffer): void => {
    if (names.includes(key)) found.set(key, value);
  };
  await inSlices(visitJudgedMembers(args, visit));
  return found;
}

/**
 * The query that a call asks for, made of the very bytes of its arguments, so that no number is
 * ever rounded on the way. The grammar is judged by whoever is asked.
 */
export function queryOf(operation: OperationName, ...args: readonly Buffer[]): Buffer {
  return Buffer.concat([Buffer.from(`{"${operation}":`), ...args, Buffer.from("}")]);
}

/** A count of rows among the arguments; undefined if it is left out, or refused by the grammar. */
export function countIn(value: Buffer | undefined): number | undefined {
  if (value === undefined || value.length > 16) return undefined;
  const digits = value.toString("latin1");
  return /^[0-9]+$/.test(digits) ? Number(digits) : undefined;
}

/**
 * The arguments of a select that asks for one row more than `rowLimit`, by which one that was cut
 * is told from one that was not.
 *
 * @param limit the limit among the arguments, a part of them
 */
export function withRowLimit(args: Buffer, limit: Buffer | undefined, rowLimit: number): Buffer[] {
  const most = Buffer.from(String(rowLimit + 1));
  if (limit === undefined) {
    const rest = args.subarray(1);
    const isEmpty = /^\s*\}/.test(rest.toString("latin1", 0, 64));
    return [Buffer.from(`{"limit":${most}${isEmpty ? "" : ","}`), rest];
  }
  const asked = countIn(limit);
  // What is no count is left to the grammar to refuse.
  if (asked === undefined || asked <= rowLimit) return [args];
  const at = limit.byteOffset - args.byteOffset;
  return [args.subarray(0, at), most, args.subarray(at + limit.length)];
}
