import { skipUniqueKeys } from "../json/document.ts";
import { tokenOf } from "../json/reader.ts";
import { type Fields, type Kind, type Level, optional } from "./kind.ts";
import { ObjectShape } from "./object-shape.ts";
import type { OperationDraft } from "./operation-draft.ts";
import {
  configuredFields,
  definitions,
  type OperationDefinition,
  operationNames,
} from "./operations.ts";
import type { PermissionClass } from "./query.ts";

type ConfigurablePermission = "SELECT" | "INSERT" | "UPDATE" | "DELETE" | "CREATE" | "DROP";

export interface GrammarOptions {
  /** Fields that every operation accepts in addition, with any JSON value whose keys are unique. */
  readonly extraFields: readonly string[];
  readonly operations: Readonly<Record<string, ConfigurablePermission>>;
  /** `full` by default. */
  readonly level?: Level;
}

export interface Operation {
  readonly name: string;
  /** The key with quotes, as it nearly always appears in a body. */
  readonly token: Uint8Array;
  readonly permissions: readonly PermissionClass[];
  readonly reads: boolean;
  readonly inBatch: boolean;
  readonly shape: ObjectShape<OperationDraft>;
  readonly judge: OperationDefinition["judge"];
}

export interface Grammar {
  readonly level: Level;
  readonly operations: ReadonlyMap<string, Operation>;
  /** The operations, the most likely first. */
  readonly inOrder: readonly Operation[];
}

export const batchKey = "Batch";
export const LARGEST_BATCH = 1000;
/** Other engines name the operation by this key, so beside an operation it allows two readings. */
export const foreignOperationKey = "op";

const anyValue: Kind<unknown> = {
  read(reader, draft) {
    draft.hasExtraFields = true;
    return skipUniqueKeys(reader);
  },
  schema: () => ({}),
};

/** Creates the grammar of a configuration, whose schema has checked the names. */
export function createGrammar({
  extraFields,
  operations,
  level = "full",
}: GrammarOptions): Grammar {
  const extra = Object.fromEntries(extraFields.map((name) => [name, optional(anyValue)]));
  const shapeOf = (fields: Fields<OperationDraft>) => new ObjectShape({ ...fields, ...extra });
  const known = operationNames
    .map((name) => ({ name, ...definitions[name] }))
    .filter((definition) => level === "full" || definition.level !== "full")
    .map(
      ({ name, permissions, effect, inBatch, fields, judge }): Operation => ({
        ...{ name, permissions, inBatch, judge },
        token: tokenOf(name),
        reads: effect === "reads",
        shape: shapeOf(fields),
      }),
    );
  const configured = Object.entries(operations).map(
    ([name, permission]): Operation => ({
      name,
      token: tokenOf(name),
      permissions: [permission],
      // Its effect is unknown, so it is never sent twice and never part of a Batch.
      reads: false,
      inBatch: false,
      shape: shapeOf(configuredFields),
      judge: undefined,
    }),
  );
  const all = [...known, ...configured];
  return {
    level,
    operations: new Map(all.map((operation) => [operation.name, operation])),
    inOrder: all,
  };
}

/** Names that a configured operation must not have. */
export const operationKeys: readonly string[] = [batchKey, foreignOperationKey, ...operationNames];
/** Names that a configured field must not have. */
export const fieldNames: readonly string[] = Object.values(definitions).flatMap(({ fields }) =>
  Object.keys(fields),
);
