/** The grammar of `POST /query` in JSON Schemas, as it is without `[query]` in the configuration. */
import { batchKey, largestBatch } from "../query/grammar.ts";
import { objectSchema } from "../query/kind.ts";
import { definitions } from "../query/operations.ts";
import { collectInto, named, type Schema } from "../query/schema.ts";
import { object, schemaPrefix } from "./schemas.ts";

/** The schemas of queries, by name; `Query` is the whole body. */
export const querySchemas: Readonly<Record<string, Schema>> = describeQueries();

function describeQueries(): Record<string, Schema> {
  const schemas = new Map<string, Schema>();
  const reference = collectInto(schemas, schemaPrefix);
  const keyed = Object.entries(definitions).map(([name, { fields, inBatch, description }]) => {
    const make = named(name, () => ({ description, ...objectSchema(fields)(reference) }));
    return { inBatch, schema: object({ [name]: make(reference) }) };
  });
  const elements = keyed.filter(({ inBatch }) => inBatch).map(({ schema }) => schema);
  const batch = { type: "array", minItems: 1, maxItems: largestBatch, items: { oneOf: elements } };
  return {
    Query: {
      description:
        "One operation, as an object with one key. The gateway refuses more than can be said here: " +
        "a key given twice, a column of a table that the operation is not about, arrays and objects " +
        "nested more than 64 deep. `[query]` of the configuration may add operations and fields.",
      oneOf: [...keyed.map(({ schema }) => schema), object({ [batchKey]: batch })],
    },
    ...Object.fromEntries(schemas),
  };
}
