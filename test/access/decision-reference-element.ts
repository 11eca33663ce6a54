/** One element of a query as the second reading of the contract takes it apart, and its rights. */

import type { Boundary, Grant } from "../../src/access/grant.ts";
import type { DecisionContext } from "../../src/access/rights.ts";
import type { Asked, JsonObject } from "./decision-queries.ts";
import { listAt, objectAt, objectsAt, textAt } from "./decision-reference-query.ts";
import {
  decider,
  differsByForm,
  gives,
  isPattern,
  needs,
  plain,
  start,
} from "./decision-reference-rules.ts";
import { username, type World } from "./decision-worlds.ts";

/** One element of a query, taken apart. */
export interface Element {
  readonly world: World;
  readonly context: DecisionContext;
  readonly operation: string;
  readonly isPreview: boolean;
  readonly fields: JsonObject;
  readonly database: string;
  readonly joins: readonly JsonObject[];
  readonly own: readonly string[];
  readonly references: readonly string[];
  readonly fitting: readonly Boundary[];
}

const nobody: Grant = { username, database: "", role: "None" };

/** Takes an element apart. */
export function takeApart(world: World, element: JsonObject, { context }: Asked): Element {
  const [key = ""] = Object.keys(element);
  const isPreview = key === "Preview";
  const held = objectAt(element, key);
  const [operation = ""] = isPreview ? Object.keys(held) : [key];
  const fields = isPreview ? objectAt(held, operation) : held;
  const database = textAt(fields, "database");
  const joins = objectsAt(fields, "join");
  const joined = joins.map((join) => textAt(join, "table"));
  const defined = operation === "CreateTable" ? objectsAt(fields, "columns") : [];
  const fitting = world.boundaries.filter(
    ({ via, client, username: user, database: on }) =>
      via === context.via &&
      (client ?? context.client) === context.client &&
      (user ?? username) === username &&
      (on ?? database) === database,
  );
  return {
    ...{ world, context, operation, isPreview, fields, database, joins, fitting },
    own: [...[...listAt(fields, "from"), ...listAt(fields, "table")].map(String), ...joined],
    references: defined.flatMap((column) => listAt(column, "references")).map(String),
  };
}

/** The table of `table.column`. */
export function tableOf(reference: string): string {
  return reference.split(".")[0] ?? "";
}

/** Tables with the rights that are needed there; the database itself without a table. */
function rightsOf({ operation, isPreview, own, references }: Element) {
  const wanted = [...(needs[operation] ?? []), ...(isPreview ? ["SELECT"] : [])];
  return [
    ...(own.length === 0 ? [undefined] : own).map((table) => ({ table, wanted })),
    ...references.map((reference) => ({ table: tableOf(reference), wanted: ["SELECT"] })),
  ];
}

/** The entry that decides on a table; nobody's where none does. */
export function grantOf({ world, database }: Element, table: string): Grant {
  const grant = decider(world, database, table);
  return grant === undefined || grant === "lapsed" ? nobody : grant;
}

/** What is wrong with the rights of an element. */
export function rightFaults(element: Element): string[] {
  const { world, database, fitting } = element;
  const files = [...world.grants, ...world.boundaries].map((rule) => rule.database ?? "*");
  if (files.some((name) => differsByForm(name, database))) return ["database_case_mismatch"];
  const written = world.grants
    .filter((grant) => grant.database === database || grant.database === "*")
    .flatMap(({ tables = [] }) => tables);
  return rightsOf(element).flatMap(({ table, wanted }) => {
    const isOther = (name: string) =>
      table !== undefined &&
      (isPattern(name)
        ? plain(table).startsWith(plain(start(name))) && !table.startsWith(start(name))
        : differsByForm(name, table));
    const faults = written.some(isOther) ? ["name_case_mismatch"] : [];
    const grant = decider(world, database, table);
    if (grant === undefined) return [...faults, "no_grant"];
    if (grant === "lapsed") return [...faults, "grant_expired"];
    const roles = [grant, ...fitting].map(({ role = "Owner" }) => gives[role] ?? []);
    const isGiven = wanted.every((right) => roles.every((role) => role.includes(right)));
    return isGiven ? faults : [...faults, "role_insufficient"];
  });
}

/** The rights of an element whose use needs approval. */
export function asksOf(element: Element): string[] {
  const { world, database, fitting } = element;
  return rightsOf(element).flatMap(({ table, wanted }) => {
    const grant = decider(world, database, table);
    const rules = grant === undefined || grant === "lapsed" ? fitting : [grant, ...fitting];
    const asked = rules.flatMap(({ requireApproval = [] }): readonly string[] => requireApproval);
    return wanted.filter((right) => asked.includes(right));
  });
}
