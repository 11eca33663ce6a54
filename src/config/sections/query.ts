import { z } from "zod";
import { fieldNames, operationKeys } from "../../query/grammar.ts";
import { refuse, text } from "../kinds.ts";

const takenOperations = new Set(operationKeys.map(fold));
const takenFields = new Set([...operationKeys, ...fieldNames].map(fold));

const fieldName = text(
  "1 to 63 ASCII letters, digits and _, not a name of the query grammar",
  (name) => /^\w{1,63}$/.test(name) && isFree(name, takenFields),
);
const operationName = text(
  "a letter and up to 62 letters and digits, not a name of the query grammar",
  (name) => /^[A-Za-z][A-Za-z0-9]{0,62}$/.test(name) && isFree(name, takenOperations),
);
const permission = z.enum(["SELECT", "INSERT", "UPDATE", "DELETE", "CREATE", "DROP"]);

/** An upstream may read `Database`, `data_base` and `database` as one name. */
function fold(name: string): string {
  return name.toLowerCase().replaceAll("_", "");
}

/** Names of every JavaScript object are refused, since they could be found without being there. */
function isFree(name: string, taken: ReadonlySet<string>): boolean {
  return !taken.has(fold(name)) && !(name in Object.prototype);
}

function refuseRepeats(
  context: z.core.$RefinementCtx,
  names: readonly string[],
  pathOf: (name: string, index: number) => PropertyKey[],
): void {
  const seen = new Map<string, string>();
  for (const [index, name] of names.entries()) {
    const other = seen.get(fold(name));
    if (other === undefined) seen.set(fold(name), name);
    else refuse(context, pathOf(name, index), `each name once, and ${other} is already there`);
  }
}

/** `[query]`: what the query grammar accepts beyond its own operations and fields. */
export const query = z
  .strictObject({
    level: z
      .enum(["core", "full"])
      .optional()
      .meta({
        description:
          'How much of the query grammar is read: "full" before gatehouse engine, "core" before ' +
          "another upstream unless set, since one that ignores what it does not know would answer wrongly.",
        examples: ["full"],
      }),
    extra_fields: z
      .array(fieldName)
      .superRefine((names, context) => refuseRepeats(context, names, (_name, index) => [index]))
      .default([])
      .meta({
        description: "Further fields that every operation may carry, with any value.",
        examples: [["hint"]],
      }),
    operations: z
      .record(operationName, permission)
      .superRefine((operations, context) =>
        refuseRepeats(context, Object.keys(operations), (name) => [name]),
      )
      .default({})
      .meta({
        description: "Further operations, each with the right that it needs.",
        examples: [{ Truncate: "DELETE" }],
      }),
  })
  .prefault({})
  .describe("What queries may hold beyond the grammar's own operations and fields.");
