import { runCooperatively } from "../../cooperative-scheduling.ts";
import { quoteName } from "../../json/fault.ts";
import { visitJudgedMembers } from "../../json/members.ts";
import type { batchKey, Grammar } from "../../query/grammar.ts";
import type { OperationName } from "../../query/operations.ts";
import type { PermissionClass } from "../../query/query.ts";
import { QueryRefused } from "../../query/refusal.ts";
import { meantField } from "../../query/synonyms.ts";
import { askWhether } from "../../suggestion.ts";
import type { SchemaSource } from "../../upstream/schema-source.ts";
import type { ToolDefinition } from "./definitions.ts";
import type { QueryAnswer, ToolResult } from "./result.ts";

/** The right that a call needs, as far as it is known before its arguments are parsed. */
export interface AskedRight {
  readonly operation: string;
  readonly permissions: readonly PermissionClass[];
  /** Undefined if the arguments name none. The right then counts on any database. */
  readonly database: string | undefined;
  readonly tables: readonly string[];
}

export interface ToolContext<Caller> {
  readonly grammar: Grammar;
  /** Checks the right and audits a denial. @throws Refusal */
  readonly requireRight: (principal: Caller, asked: AskedRight) => void;
  /**
   * Judges, audits and runs a query, as on `/query`.
   *
   * @throws Refusal, or QueryRefused
   */
  readonly ask: (
    principal: Caller,
    query: Buffer,
    options: {
      readonly signal: AbortSignal;
      readonly largest: number;
      readonly approval?: string | undefined;
    },
  ) => Promise<QueryAnswer>;
  /** If it offers no schema, the schema tools are absent. */
  readonly schema: SchemaSource<Caller>;
  /** Row limit of the caller's entries for these tables. Undefined if there is none. */
  readonly mostRows: (
    principal: Caller,
    database: string,
    tables: readonly string[],
  ) => number | undefined;
  readonly mayNeedApproval?: (principal: Caller) => boolean;
  readonly rowLimit: number;
  readonly resultBytes: number;
  readonly whoIs: (principal: Caller) => WhoAmI;
  readonly mayUse: (principal: Caller, permission: PermissionClass) => boolean;
}

export interface ToolCall<Caller> {
  readonly principal: Caller;
  readonly arguments: Buffer;
  readonly signal: AbortSignal;
  /** The approval id, which was removed from the arguments. */
  readonly approval?: string | undefined;
}

export interface Tool<Caller> {
  readonly definition: ToolDefinition;
  readonly isOfSchema?: boolean;
  readonly takesApproval?: boolean;
  readonly perform: (call: ToolCall<Caller>) => Promise<ToolResult>;
}

export interface WhoAmI {
  /** Absent while authentication is off. */
  readonly user?: string;
  /** RFC 3339. */
  readonly token_expires?: string;
  readonly scopes: readonly string[];
  /** One element per entry, with its limits. The database `*` stands for all others. */
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
 * Builds the query from the raw bytes of the arguments, so that no number is rounded. The query
 * parser judges the grammar.
 */
export function queryOf(
  operation: OperationName | typeof batchKey,
  ...args: readonly Buffer[]
): Buffer {
  return Buffer.concat([Buffer.from(`{"${operation}":`), ...args, Buffer.from("}")]);
}

/** A row count among the arguments. Undefined if it is missing or the grammar will refuse it. */
export function countIn(value: Buffer | undefined): number | undefined {
  if (value === undefined || value.length > 16) return undefined;
  const digits = value.toString("latin1");
  return /^[0-9]+$/.test(digits) ? Number(digits) : undefined;
}

export function withMember(args: Buffer, member: string): Buffer[] {
  const rest = args.subarray(1);
  const isEmpty = /^\s*\}/.test(rest.toString("latin1", 0, 64));
  return [Buffer.from(`{${member}${isEmpty ? "" : ","}`), rest];
}

interface LimitedSelect {
  readonly query: Buffer[];
  readonly most: number;
  /**
   * True if the limit left no room for an extra row, so that there may be more rows than are shown.
   */
  readonly isCapped: boolean;
}

/**
 * Makes a select request one row more than is shown, to detect whether rows were cut off.
 *
 * @param limit the limit, a slice of the arguments
 * @param allowed rows that may be requested
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
  // An invalid or too high limit is refused later.
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
 * Parses arguments that may hold only the allowed members.
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
