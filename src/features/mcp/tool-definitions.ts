import { readFileSync } from "node:fs";
import { z } from "zod";
import { isObject } from "../../core/json/exact.ts";
import type { Fields, Level, Schema } from "../../core/query/kind.ts";
import { operations } from "../../core/query/operations.ts";
import { permissionClasses } from "../../core/query/permissions.ts";
import type { OperationName } from "../../core/query/tree.ts";

/** What `generate/mcp-tools.ts` makes from the table of operations. */
const toolsFile = new URL("../../../schemas/mcp-tools.json", import.meta.url);

const schema = z.record(z.string(), z.unknown());

const definitionShape = z.object({
  name: z.string(),
  title: z.string(),
  description: z.string(),
  permissions: z.array(z.enum(permissionClasses)),
  inputSchema: schema,
  outputSchema: schema.exactOptional(),
  annotations: z.object({
    readOnlyHint: z.boolean(),
    destructiveHint: z.boolean().exactOptional(),
    idempotentHint: z.boolean().exactOptional(),
    openWorldHint: z.boolean(),
  }),
});
export type ToolDefinition = Readonly<z.output<typeof definitionShape>>;

const definitionsShape = z.record(z.enum(["core", "full"]), z.array(definitionShape));

/** The tools at a level of the grammar, as clients see them, in the order of the list. */
export function toolDefinitions(level: Level): readonly ToolDefinition[] {
  return definitionsShape.parse(JSON.parse(readFileSync(toolsFile, "utf8")))[level];
}

export function operationTool(operation: OperationName): string {
  return operation.replace(/(?<=[a-z])(?=[A-Z])/g, "_").toLowerCase();
}

/** Fields of Select that would change what is counted, or make no sense with it. */
const notCounted: ReadonlySet<string> = new Set([
  "columns",
  "aggregate",
  "distinct",
  "include",
  "order_by",
  "after",
  "limit",
  "offset",
]);

export const countFields: Fields = Object.fromEntries(
  Object.entries(operations.Select.fields).filter(([name]) => !notCounted.has(name)),
);

export const batchField = "operations";
export const MAX_DESCRIBED_TABLES = 20;

export function propertiesOf({ properties }: Schema): Schema | undefined {
  return isObject(properties) ? properties : undefined;
}

export const approvalField = "approval";

/** The tool for a caller who may need approvals. Its result can also say that one is pending. */
export function withApproval(definition: ToolDefinition): ToolDefinition {
  const { inputSchema, outputSchema } = definition;
  const approval = { type: "string", description: "Approval id of this exact call." };
  const properties = { ...propertiesOf(inputSchema), [approvalField]: approval };
  const { required: _, ...open } = outputSchema ?? {};
  return {
    ...definition,
    inputSchema: { ...inputSchema, properties },
    ...(outputSchema && { outputSchema: open }),
  };
}
