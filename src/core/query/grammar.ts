import { Word } from "../json/tape.ts";
import { type Fields, type Kind, type Level, ObjectShape, optional } from "./kind.ts";
import {
  configuredFields,
  definitions,
  type OperationDefinition,
  operationNames,
} from "./operations.ts";
import type { PermissionClass } from "./permissions.ts";

type ConfigurablePermission = "SELECT" | "INSERT" | "UPDATE" | "DELETE" | "CREATE" | "DROP";

interface GrammarOptions {
  /** Fields that every operation accepts in addition, with any JSON value whose keys are unique. */
  readonly extraFields: readonly string[];
  readonly operations: Readonly<Record<string, ConfigurablePermission>>;
  /** `full` by default. */
  readonly level?: Level;
}

export interface GrammarOperation {
  readonly name: string;
  readonly word: Word;
  readonly permissions: readonly PermissionClass[];
  readonly reads: boolean;
  readonly inBatch: boolean;
  readonly shape: ObjectShape;
  readonly check: OperationDefinition["check"];
}

export interface Grammar {
  readonly level: Level;
  readonly extraFields: ReadonlySet<string>;
  readonly operations: ReadonlyMap<string, GrammarOperation>;
  /** The operations, the most likely first. */
  readonly inOrder: readonly GrammarOperation[];
}

export const batchKey = "Batch";
export const LARGEST_BATCH = 1000;
/** Other engines name the operation by this key, so beside an operation it allows two readings. */
export const foreignOperationKey = "op";

/** The tape has checked the value. */
const extraValue: Kind<undefined> = {
  parse(_tape, _token, node) {
    node.hasExtraFields = true;
    return undefined;
  },
  schema: () => ({}),
};

/** Creates the grammar of a configuration, whose schema has checked the names. */
export function createGrammar(options: GrammarOptions): Grammar {
  const { extraFields, operations, level = "full" } = options;
  const extra = Object.fromEntries(extraFields.map((name) => [name, optional(extraValue)]));
  const toShape = (fields: Fields) => new ObjectShape({ ...fields, ...extra });
  const known = operationNames
    .map((name) => ({ name, ...definitions[name] }))
    .filter((definition) => level === "full" || definition.level !== "full")
    .map(
      ({ name, permissions, effect, inBatch, fields, check }): GrammarOperation => ({
        name,
        permissions,
        inBatch,
        check,
        word: new Word(name),
        reads: effect === "reads",
        shape: toShape(fields),
      }),
    );
  const configured = Object.entries(operations).map(
    ([name, permission]): GrammarOperation => ({
      name,
      word: new Word(name),
      permissions: [permission],
      // Its effect is unknown, so it is never sent twice and never part of a Batch.
      reads: false,
      inBatch: false,
      shape: toShape(configuredFields),
      check: undefined,
    }),
  );
  const all = [...known, ...configured];
  return {
    level,
    extraFields: new Set(extraFields),
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
