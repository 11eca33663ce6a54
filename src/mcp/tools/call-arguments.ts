import { runCooperatively } from "../../cooperative-scheduling.ts";
import { visitJudgedMembers } from "../../json/members.ts";
import { BodyReader } from "../../query/body-reader.ts";
import { required } from "../../query/kind.ts";
import { ObjectShape } from "../../query/object-shape.ts";
import type { OperationName } from "../../query/operations.ts";
import { plainName } from "../../query/values.ts";

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

/** What a tool that tells of the schema is asked about. */
export interface Asked {
  database: string;
  table: string;
}

const database = required(
  plainName<Asked>((asked, name) => {
    asked.database = name;
  }),
);
const table = required(
  plainName<Asked>((asked, name) => {
    asked.table = name;
  }),
);

/** The arguments that schema tools take, by what they are about. */
export const askedShapes = {
  everything: new ObjectShape<Asked>({}, "none"),
  database: new ObjectShape<Asked>({ database }),
  table: new ObjectShape<Asked>({ database, table }),
} as const;

/** Reads the arguments of a schema tool. @throws QueryRefused */
export function readAsked(args: Buffer, shape: ObjectShape<Asked>): Asked {
  const asked: Asked = { database: "", table: "" };
  const reader = new BodyReader(args, true);
  // As in a query, where the operation's name comes first.
  reader.path.push("Schema");
  try {
    shape.read(reader, asked);
  } catch (error) {
    throw reader.asRefusal(error);
  }
  return asked;
}
