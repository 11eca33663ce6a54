/** The query grammar of one configuration: the operations of the contract, and the configured ones. */

import { tokenOf } from "../json/bytes.ts";
import { skipUniqueKeys } from "../json/document.ts";
import { quoteName } from "../json/fault.ts";
import { type Fields, type Kind, type Level, optional } from "./kind.ts";
import { isPlainName, plainNameRule } from "./names.ts";
import { ObjectShape } from "./object-shape.ts";
import type { OperationDraft } from "./operation-draft.ts";
import {
  configuredFields,
  definitions,
  type OperationDefinition,
  operationNames,
} from "./operations.ts";
import type { PermissionClass } from "./permissions.ts";

/** The rights that a configured operation can be mapped to. */
export type ConfigurablePermission = "SELECT" | "INSERT" | "UPDATE" | "DELETE" | "CREATE" | "DROP";

/** The part of the configuration that widens the grammar. */
export interface GrammarOptions {
  /** Fields that every operation may have beside its own, with any JSON value of unique keys. */
  readonly extraFields: readonly string[];
  /** Further operation keys, each with the right it needs. */
  readonly operations: Readonly<Record<string, ConfigurablePermission>>;
  /** `full` unless it says otherwise. */
  readonly level?: Level;
}

/** An operation key of the grammar. */
export interface Operation {
  readonly name: string;
  /** The key as it is nearly always written in a body. */
  readonly token: Uint8Array;
  readonly permissions: readonly PermissionClass[];
  readonly reads: boolean;
  /** Whether it may be an element of a Batch. */
  readonly inBatch: boolean;
  readonly shape: ObjectShape<OperationDraft>;
  readonly judge: OperationDefinition["judge"];
}

/** What the scanner accepts; made by `createGrammar`, once for a configuration. */
export interface Grammar {
  readonly level: Level;
  readonly operations: ReadonlyMap<string, Operation>;
  /** The same ones, the likeliest first. */
  readonly inOrder: readonly Operation[];
}

/** The key of a list of operations that are carried out together. */
export const batchKey = "Batch";
/** Elements that a Batch has at the most. */
export const LARGEST_BATCH = 1000;
/** The key by which other engines name the operation; beside an operation key it would be a second reading. */
export const foreignOperationKey = "op";

/** Any value whose objects have each key once. */
const anyValue: Kind<unknown> = {
  read(reader, draft) {
    draft.hasExtraFields = true;
    return skipUniqueKeys(reader);
  },
  schema: () => ({}),
};

/**
 * Makes the grammar of a configuration.
 *
 * @throws Error if an extra field or operation is not a plain name, or is one of the grammar's
 * own names or given twice. Names are compared without regard to case, `_` and `-`, since an
 * upstream may read `Database` as `database`.
 */
export function createGrammar(options: GrammarOptions): Grammar {
  const { extraFields, operations, level = "full" } = options;
  requireNewNames("extra field", extraFields, [...operationKeys, ...fieldNames]);
  requireNewNames("operation", Object.keys(operations), operationKeys);
  const extra = Object.fromEntries(extraFields.map((name) => [name, optional(anyValue)]));
  const shapeOf = (fields: Fields<OperationDraft>) => new ObjectShape({ ...fields, ...extra });
  const known = operationNames
    .map((name) => ({ name, ...definitions[name] }))
    .filter((definition) => level === "full" || definition.level !== "full")
    .map(({ name, permissions, effect, inBatch, fields, judge }): Operation => {
      const reads = effect === "reads";
      return {
        name,
        token: tokenOf(name),
        permissions,
        reads,
        inBatch,
        shape: shapeOf(fields),
        judge,
      };
    });
  const configured = Object.entries(operations).map(
    ([name, permission]): Operation => ({
      name,
      token: tokenOf(name),
      permissions: [permission],
      // What it does nobody here knows: it is never sent twice, nor put into a Batch.
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

/** The keys that no configured operation may have. */
export const operationKeys: readonly string[] = [batchKey, foreignOperationKey, ...operationNames];
/** The names that no configured field may have. */
export const fieldNames: readonly string[] = Object.values(definitions).flatMap(({ fields }) =>
  Object.keys(fields),
);

function requireNewNames(kind: string, names: readonly string[], own: readonly string[]): void {
  const taken = new Map(own.map((name) => [fold(name), name]));
  for (const name of names) {
    if (!isPlainName(name)) {
      throw new Error(`the ${kind} ${quoteName(name)} is no plain name; allowed: ${plainNameRule}`);
    }
    const other = taken.get(fold(name));
    if (other !== undefined) {
      throw new Error(`the ${kind} ${quoteName(name)} collides with ${quoteName(other)}`);
    }
    taken.set(fold(name), name);
  }
}

function fold(name: string): string {
  return name.toLowerCase().replace(/[_-]/g, "");
}
