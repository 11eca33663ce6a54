import { runCooperatively } from "../../cooperative-scheduling.ts";
import { quoteName } from "../../json/fault.ts";
import { visitJudgedMembers } from "../../json/members.ts";
import type { batchKey, Grammar } from "../../query/grammar.ts";
import type { OperationName } from "../../query/operations.ts";
import type { PermissionClass } from "../../query/permissions.ts";
import { QueryRefused } from "../../query/refusal.ts";
import { meantField } from "../../query/synonyms.ts";
import { askWhether } from "../../suggestion.ts";
import type { SchemaSource } from "../../upstream/schema-source.ts";
import type { ToolDefinition } from "./definitions.ts";
import type { QueryAnswer, ToolResult } from "./result.ts";

/** What a tool is made of, for those that carry it out and those that offer it. */

/** What a call asks for, as far as its right can be judged ahead of its arguments. */
export interface AskedRight {
  readonly operation: string;
  readonly permissions: readonly PermissionClass[];
  /** Undefined if the arguments name none: then the right is needed anywhere at all. */
  readonly database: string | undefined;
  readonly tables: readonly string[];
}

/** What the tools work on. */
export interface ToolContext<Caller> {
  readonly grammar: Grammar;
  /** Judges the right of a call, and notes a denial. @throws Refusal */
  readonly requireRight: (principal: Caller, asked: AskedRight) => void;
  /**
   * Judges a query, notes it in the audit, and carries it out, as on `/query`.
   *
   * @throws Refusal, or QueryRefused
   */
  readonly ask: (
    principal: Caller,
    query: Buffer,
    options: {
      readonly signal: AbortSignal;
      readonly largest: number;
      /** The id of the approval that the call shows. */
      readonly approval?: string | undefined;
    },
  ) => Promise<QueryAnswer>;
  /** What there is; where nothing is told, the tools that tell it are absent. */
  readonly schema: SchemaSource<Caller>;
  /** Rows that an answer about tables may have by the caller's entries; undefined for any number. */
  readonly mostRows: (
    principal: Caller,
    database: string,
    tables: readonly string[],
  ) => number | undefined;
  /** True if something that the principal may do has to be approved. */
  readonly mayNeedApproval?: (principal: Caller) => boolean;
  /** Rows that one call returns at most. */
  readonly rowLimit: number;
  /** Bytes that one call returns at most. */
  readonly resultBytes: number;
  /** Who calls, as the tool `whoami` tells it. */
  readonly whoIs: (principal: Caller) => WhoAmI;
  /** True if the principal has the right on any database at all. */
  readonly mayUse: (principal: Caller, permission: PermissionClass) => boolean;
}

/** One call: by whom, and its arguments as they were sent. */
export interface ToolCall<Caller> {
  readonly principal: Caller;
  readonly arguments: Buffer;
  readonly signal: AbortSignal;
  /** The id of an approval, which is taken out of the arguments. */
  readonly approval?: string | undefined;
}

/** A tool and how it is carried out. */
export interface Tool<Caller> {
  readonly definition: ToolDefinition;
  /** True if it tells what there is. */
  readonly isOfSchema?: boolean;
  /** True if its call may have to be approved. */
  readonly takesApproval?: boolean;
  readonly perform: (call: ToolCall<Caller>) => Promise<ToolResult>;
}

/** Who calls, what that one may do, and how much in one call. */
export interface WhoAmI {
  /** Absent while authentication is off. */
  readonly user?: string;
  /** When the token ends, as RFC 3339 has it. */
  readonly token_expires?: string;
  /** What the token opens of `/mcp`. */
  readonly scopes: readonly string[];
  /** By entry, with what narrows it; the database `*` stands for every other one. */
  readonly access: readonly {
    readonly database: string;
    readonly role: string;
    readonly rights: readonly PermissionClass[];
    readonly [narrowing: string]: unknown;
  }[];
  readonly limits: {
    readonly rows: number;
    readonly result_bytes: number;
    readonly message_bytes: number;
    readonly seconds: number;
  };
}

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
