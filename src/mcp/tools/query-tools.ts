/** The tools that ask queries. */
import { z } from "zod";
import { batchKey, type Grammar } from "../../query/grammar.ts";
import { definitions, type OperationName } from "../../query/operations.ts";
import { plainNameIn } from "../message.ts";
import { batchResult, changeOf, countResult, rowsOf } from "./answers.ts";
import { takeApproval } from "./approval-argument.ts";
import {
  argumentsNamed,
  queryOf,
  requireFields,
  withMember,
  withRowLimit,
} from "./call-arguments.ts";
import { goOnBehind, pageNames } from "./cursor.ts";
import {
  batchField,
  batchTool,
  countFieldNames,
  countTool,
  type QueryTool,
  queryTools,
  type ToolDefinition,
} from "./definitions.ts";
import type { Tool, ToolContext } from "./tool.ts";

/** Judges the right that a call needs by what its arguments name, before they are looked at further. */
function judge<Caller>(
  { requireRight }: ToolContext<Caller>,
  principal: Caller,
  operation: OperationName,
  found: ReadonlyMap<string, Buffer>,
): void {
  const { permissions, effect } = definitions[operation];
  // A Preview names its database further in: it is judged with the query that it is.
  if (effect === "previews") return;
  const table = plainNameIn(found.get("from") ?? found.get("table"));
  const tables = table === undefined ? [] : [table];
  requireRight(principal, {
    operation,
    permissions,
    database: plainNameIn(found.get("database")),
    tables,
  });
}

const placeNames = ["database", "table", "from"];

const readNames = [...placeNames, ...pageNames, "join"];

const joined = z.object({ table: z.string() });
const joins = z.union([joined.transform((only) => [only]), z.array(joined)]);
/** Bytes of a `join` that the grammar could take. */
const LONGEST_JOIN = 8 * 1024;

/** The tables that a select reads, as far as its arguments are well-formed. */
function readTables(found: ReadonlyMap<string, Buffer>): string[] {
  const from = plainNameIn(found.get("from"));
  const join = found.get("join");
  const isShort = join !== undefined && join.length <= LONGEST_JOIN;
  const others = joins.safeParse(isShort ? JSON.parse(join.toString("utf8")) : []);
  const names = others.success ? others.data.map(({ table }) => table) : [];
  return from === undefined ? names : [from, ...names];
}

function fromQuery<Caller>(context: ToolContext<Caller>, definition: QueryTool): Tool<Caller> {
  const { operation, reads } = definition;
  return {
    definition,
    async perform({ principal, arguments: args, signal, approval }) {
      const found = await argumentsNamed(args, reads ? readNames : placeNames);
      judge(context, principal, operation, found);
      // Read for each call: they may have changed.
      const { ask, rowLimit, resultBytes, grammar } = context;
      const options = { signal, largest: resultBytes, approval };
      if (!reads) {
        const answer = await ask(principal, queryOf(operation, args), options);
        const isKept = definitions[operation].effect !== "previews";
        return changeOf(answer, resultBytes, isKept ? "Done" : "Nothing is kept");
      }
      const database = plainNameIn(found.get("database")) ?? "";
      const tables = readTables(found);
      const allowed = context.mostRows(principal, database, tables);
      const limited = withRowLimit(args, found.get("limit"), rowLimit, allowed);
      const answer = await ask(principal, queryOf(operation, ...limited.query), options);
      const goOn = goOnBehind(found, grammar.level, (order) =>
        context.schema.isUniqueOrder(principal, database, tables, order, signal),
      );
      return rowsOf(answer, { ...limited, bytes: resultBytes, goOn });
    },
  };
}

/** A name that no table has a column of: a result is never called as a column is. */
const countName = "_gatehouse_count";
const counting = `"aggregate":[{"fn":"count","as":"${countName}"}]`;

function counter<Caller>(context: ToolContext<Caller>, definition: ToolDefinition): Tool<Caller> {
  return {
    definition,
    async perform({ principal, arguments: args, signal, approval }) {
      const found = await argumentsNamed(args, placeNames);
      judge(context, principal, "Select", found);
      await requireFields(args, countFieldNames);
      const query = queryOf("Select", ...withMember(args, counting));
      const options = { signal, largest: context.resultBytes, approval };
      const answer = await context.ask(principal, query, options);
      return countResult(answer, countName);
    },
  };
}

function batcher<Caller>(context: ToolContext<Caller>, definition: ToolDefinition): Tool<Caller> {
  return {
    definition,
    async perform({ principal, arguments: args, signal, approval }) {
      const found = await requireFields(args, [batchField], [batchField]);
      const query = queryOf(batchKey, found.get(batchField) ?? noOperations);
      const { ask, rowLimit, resultBytes } = context;
      const answer = await ask(principal, query, { signal, largest: resultBytes, approval });
      return batchResult(answer, { most: rowLimit, bytes: resultBytes });
    },
  };
}

const noOperations = Buffer.from("[]");

/** The tools that ask queries of this grammar. */
export function askingTools<Caller>(
  context: ToolContext<Caller>,
  grammar: Grammar,
): readonly Tool<Caller>[] {
  const ofOperations = queryTools(grammar).map((definition) => fromQuery(context, definition));
  const counters = countTool(grammar).map((definition) => counter(context, definition));
  const tools = [...ofOperations, ...counters, batcher(context, batchTool(grammar))];
  return tools.map((tool) => ({
    ...tool,
    takesApproval: true,
    async perform(call) {
      return tool.perform({ ...call, ...(await takeApproval(call.arguments)) });
    },
  }));
}
