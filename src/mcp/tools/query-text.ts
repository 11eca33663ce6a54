import type { OperationName } from "../../query/operations.ts";
import { type Members, writeMembers } from "../strict-json.ts";
import { ToolFailure } from "./outcome.ts";

/**
 * The query that a call asks for, made of the very bytes of its arguments, so that no number is
 * ever rounded on the way. The grammar is judged by whoever is asked.
 */
export function queryOf(operation: OperationName, args: Members): Buffer {
  return writeMembers(new Map([[operation, writeMembers(args)]]));
}

/**
 * The arguments of a select that asks for one row more than `rowLimit`, by which one that was cut
 * is told from one that was not.
 *
 * @throws ToolFailure for a limit that is no count
 */
export function withRowLimit(args: Members, rowLimit: number): Members {
  const asked = args.get("limit")?.toString("utf8");
  if (asked !== undefined && !/^[0-9]{1,16}$/.test(asked)) {
    throw new ToolFailure("Failed: limit is written in digits only (invalid_value)");
  }
  if (asked !== undefined && Number(asked) <= rowLimit) return args;
  return new Map(args).set("limit", Buffer.from(String(rowLimit + 1)));
}
