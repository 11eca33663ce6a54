/** The tools that tell what there is, and who asks. */
import { askedShapes, readAsked } from "./call-arguments.ts";
import { schemaTools, whoAmITool } from "./definitions.ts";
import { listResult, resultOf, type ToolResult } from "./result.ts";
import type { Tool, ToolContext } from "./tool.ts";

/** The tools that tell what there is. */
export function tellingTools<Caller>(context: ToolContext<Caller>): readonly Tool<Caller>[] {
  const { schema } = context;
  const listOf = (key: string, elements: readonly unknown[], more: object = {}): ToolResult => {
    const { resultBytes: bytes } = context;
    const whole = resultOf({ [key]: elements, ...more });
    if (2 * whole.text.length <= bytes) return whole;
    const rows = elements.map((element) => Buffer.from(JSON.stringify(element)));
    return listResult(key, { rows, isCut: false }, { most: rows.length, bytes });
  };
  const tools: Tool<Caller>[] = [
    {
      definition: schemaTools.listDatabases,
      async perform({ principal, arguments: args, signal }) {
        readAsked(args, askedShapes.everything);
        return listOf("databases", await schema.listDatabases(principal, signal));
      },
    },
    {
      definition: schemaTools.listTables,
      async perform({ principal, arguments: args, signal }) {
        const { database } = readAsked(args, askedShapes.database);
        return listOf("tables", await schema.listTables(principal, database, signal));
      },
    },
    {
      definition: schemaTools.describeTable,
      async perform({ principal, arguments: args, signal }) {
        const { database, table } = readAsked(args, askedShapes.table);
        const found = await schema.describeTable(principal, database, table, signal);
        const { columns, ...more } = found;
        return listOf("columns", columns, more);
      },
    },
  ];
  return tools.map((tool) => ({ ...tool, isOfSchema: true }));
}

/** A number beyond a double is a string of its digits. */
function writeDigits(_key: string, value: unknown): unknown {
  return typeof value === "bigint" ? String(value) : value;
}

/** The tool that tells who calls. */
export function whoAmI<Caller>(context: ToolContext<Caller>): Tool<Caller> {
  return {
    definition: whoAmITool,
    async perform({ principal, arguments: args }) {
      readAsked(args, askedShapes.everything);
      return resultOf({ ...context.whoIs(principal) }, writeDigits);
    },
  };
}
