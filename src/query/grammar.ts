import { skipUniqueKeys } from "../json/document.ts";
import { quoteName } from "../json/fault.ts";
import { tokenOf } from "../json/reader.ts";
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
/**
 * The key that other engines use for the operation. Beside an operation key it would allow a second
 * reading.
 */
export const foreignOperationKey = "op";

const anyValue: Kind<unknown> = {
  read(reader, draft) {
    draft.hasExtraFields = true;
    return skipUniqueKeys(reader);
  },
  schema: () => ({}),
};

/**
 * Creates the grammar of a configuration.
 *
 * @throws Error if an extra field or operation is not a plain name, is a name of the grammar, or is
 * given twice. Names are compared without case, `_` and `-`, since an upstream may read `Database`
 * as `database`.
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

/** Keys that a configured operation must not use. */
export const operationKeys: readonly string[] = [batchKey, foreignOperationKey, ...operationNames];
/** Names that a configured field must not use. */
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
