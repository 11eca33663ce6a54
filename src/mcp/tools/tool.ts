/** What a tool is made of, for those that carry it out and those that offer it. */
import type { Grammar } from "../../query/grammar.ts";
import type { PermissionClass } from "../../query/permissions.ts";
import type { SchemaSource } from "../../upstream/schema-source.ts";
import type { QueryAnswer } from "./answers.ts";
import type { ToolDefinition } from "./definitions.ts";
import type { ToolResult } from "./result.ts";

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
