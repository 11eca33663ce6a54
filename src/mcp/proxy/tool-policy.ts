import type { Decision } from "../../access/rights.ts";
import type { Configuration } from "../../config/schema.ts";
import { runCooperatively } from "../../cooperative-scheduling.ts";
import { memoizeLast } from "../../memoize.ts";
import type { PermissionClass } from "../../query/query.ts";
import { McpRefused } from "../json-rpc.ts";
import { type McpMessage, plainNameIn, readKnownMembers } from "../message.ts";

/** The right that a call of a foreign server's tool needs, and on which database. */
export type ToolRule = Configuration["mcp"]["tools"][number];

/** The caller's rights according to the live access file. */
export interface Rights {
  /** Decides on one call. Invoked once per call, so that it can be audited. */
  readonly decide: (rule: ToolRule, database: string) => Decision;
  /** True if the caller has the right on `database`, or on any database if it is undefined. */
  readonly mayUse: (permission: PermissionClass, database?: string) => boolean;
  /** @throws Refusal `rate_limited` */
  readonly countCall?: () => Promise<void> | undefined;
}

interface CallDecision {
  readonly decision: Decision;
  readonly database: string;
  readonly argument: string | undefined;
}

function denied(message: McpMessage, code: string): McpRefused {
  const text = `Denied: this tool may not be called (${code})`;
  const options = { status: 200, reason: code, id: message.id, data: { code } };
  return new McpRefused("denied", text, options);
}

async function databaseOf(rule: ToolRule, message: McpMessage): Promise<string> {
  if (rule.database !== undefined) return rule.database;
  const { database_argument: key = "" } = rule;
  const args = message.arguments ?? Buffer.from("{}");
  const members = await runCooperatively(readKnownMembers(args, [key], message.id));
  const database = plainNameIn(members.get(key));
  if (database !== undefined) return database;
  const problem = `Invalid params: the argument ${key} names no database`;
  throw new McpRefused("invalidParams", problem, { status: 200, id: message.id });
}

/** The rules for the tools of a foreign server. A tool without a rule cannot be called. */
export class ToolPolicy {
  readonly #rules: () => readonly ToolRule[];
  readonly #byName = memoizeLast(
    (rules: readonly ToolRule[]) => new Map(rules.map((rule) => [rule.name, rule])),
  );

  constructor(rules: () => readonly ToolRule[]) {
    this.#rules = rules;
  }

  /**
   * Judges a `tools/call`.
   *
   * @throws McpRefused `denied`, or `invalidParams` if the call does not name its database
   */
  async judge(rights: Rights, message: McpMessage): Promise<CallDecision> {
    const rule = this.#ruleOf(message.name ?? "");
    if (rule === undefined) throw denied(message, "tool_without_policy");
    const database = await databaseOf(rule, message);
    const decision = rights.decide(rule, database);
    if (!decision.allowed) throw denied(message, decision.reason);
    return { decision, database, argument: rule.database_argument };
  }

  /**
   * Judges a task request. Tasks come from tool calls, so a caller who may call no tool is denied.
   *
   * @throws McpRefused `denied`
   */
  judgeTask(rights: Rights, message: McpMessage): void {
    const mayUse = ({ permission, database }: ToolRule) => rights.mayUse(permission, database);
    if (!this.#rules().some(mayUse)) throw denied(message, "no_grant");
  }

  /** True if the caller may call the tool on at least one database. */
  mayCall(rights: Rights, name: string): boolean {
    const rule = this.#ruleOf(name);
    return rule !== undefined && rights.mayUse(rule.permission, rule.database);
  }

  #ruleOf(name: string): ToolRule | undefined {
    return this.#byName(this.#rules()).get(name);
  }
}
