/** The tools that tell what there is, and who asks. */
import { BodyReader } from "../../query/body-reader.ts";
import { required } from "../../query/kind.ts";
import { ObjectShape } from "../../query/object-shape.ts";
import { plainName } from "../../query/values.ts";
import { schemaTools, whoAmITool } from "./definitions.ts";
import { listResult, resultOf, type ToolResult } from "./result.ts";
import type { Tool, ToolContext } from "./tool.ts";

/** What a tool that tells of the schema is asked about. */
interface Asked {
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
const askedShapes = {
  everything: new ObjectShape<Asked>({}, "none"),
  database: new ObjectShape<Asked>({ database }),
  table: new ObjectShape<Asked>({ database, table }),
} as const;

/** Reads the arguments of a schema tool. @throws QueryRefused */
function readAsked(args: Buffer, shape: ObjectShape<Asked>): Asked {
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

/** The tools that tell what there is. */
export function tellingTools<Caller>(context: ToolContext<Caller>): readonly Tool<Caller>[] {
  const { schema } = context;
  const listOf = async (
    key: string,
    elements: readonly unknown[],
    more: object = {},
  ): Promise<ToolResult> => {
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
