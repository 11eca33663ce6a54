/** `gatehouse access check | who`: what users may do, without a query. */
import type { Decision } from "../access/decision.ts";
import { limitsInWords, viewEntry } from "../access/entry-view.ts";
import type { EntryPoint } from "../access/grant.ts";
import { decidePlace, type PlaceDecision, waysTo } from "../access/place-decision.ts";
import { grantsOf, type Snapshot } from "../access/snapshot.ts";
import { obstacleOf } from "../access/subject.ts";
import { entriesIn } from "../access/user-grants.ts";
import type { Configuration } from "../config/schema.ts";
import { batchKey } from "../query/grammar.ts";
import { definitions, permissionsOfAll } from "../query/operations.ts";
import {
  isPermissionClass,
  type PermissionClass,
  permissionClasses,
} from "../query/permissions.ts";
import { didYouMean } from "../suggestion.ts";
import { type Place, readPlace } from "./access-entries.ts";
import { loadFor } from "./load.ts";
import { readAccess } from "./operator.ts";
import type { CommonOptions } from "./options.ts";
import { FAILURE, print, printJson, printList, UsageError } from "./output.ts";

/** The rights that an operation needs, by its key in a query or by a right's own name. */
function permissionsOf(operation: string, { query }: Configuration): readonly PermissionClass[] {
  const known = new Map<string, readonly PermissionClass[]>();
  for (const [name, own] of Object.entries(definitions)) known.set(name, permissionsOfAll(own));
  for (const [name, right] of Object.entries(query.operations)) known.set(name, [right]);
  const wanted = operation.toLowerCase();
  if (wanted === batchKey.toLowerCase()) {
    throw new UsageError(`a ${batchKey} needs what its elements need; ask for each of them`);
  }
  const key = [...known.keys()].find((name) => name.toLowerCase() === wanted);
  const permissions = known.get(key ?? "");
  if (permissions !== undefined) return permissions;
  const permission = operation.toUpperCase();
  if (isPermissionClass(permission)) return [permission];
  const all = [...known.keys(), ...permissionClasses];
  const problem = `unknown operation ${JSON.stringify(operation)}; allowed: ${all.join(", ")}`;
  throw new UsageError(problem + didYouMean(operation, all));
}

/** Why a user may or may not do something: what the decision says, or the user's own state. */
type Answer = Decision["reason"] | "user_not_found" | "user_disabled";

const explanations: Partial<Record<Answer, string>> = {
  no_grant: "there is no entry for this database, and none for *",
  role_insufficient: "the role is not enough",
  database_case_mismatch: "the file names this database in another case",
  grant_expired: "the entry has expired",
  token_database: "the token is for another database",
  token_read_only: "the token is for reading",
  user_not_found: "there is no such user",
  user_disabled: "the user is disabled",
};

function explain(answer: Answer, decided: PlaceDecision): string {
  const { role, entry, boundary, message = answer, grant } = decided;
  const deciding = `${role} by the entry for ${entry}`;
  if (answer === "allowed") {
    const limits = grant === undefined ? "" : limitsInWords(grant);
    return limits === "" ? deciding : `${deciding}; ${limits}`;
  }
  if (boundary !== undefined) return `${message} (a boundary)`;
  const explanation = explanations[answer] ?? message;
  return answer === "role_insufficient" ? `${explanation}: ${deciding}` : explanation;
}

/** What to ask instead where a user has entries for tables of a database alone; empty otherwise. */
function hintFor(snapshot: Snapshot, username: string, { database, table }: Place): string {
  const named = entriesIn(grantsOf(snapshot, username))
    .filter((grant) => table === undefined && grant.database === database)
    .flatMap(({ tables = [] }) => tables)
    .map((name) => `${database}.${name}`)
    .toArray();
  return named.length === 0 ? "" : `; there are entries for tables: ${named.join(", ")}`;
}

/** What a decision says beyond yes and no, by the keys of the file. */
function viewLimits({ grant, approvals }: PlaceDecision): object {
  if (grant === undefined) return {};
  const { database: _, role: __, ...limits } = viewEntry(grant);
  return { ...limits, ...(approvals === undefined ? {} : { approvals }) };
}

/** How a question comes. */
export interface QuestionOptions extends CommonOptions {
  readonly via: EntryPoint;
  readonly client?: string;
}

/** What is asked, the users and grants that it is asked of, and how it would come. */
async function readQuestion(operation: string, where: string, options: QuestionOptions) {
  const loaded = loadFor(options);
  const place = readPlace(where);
  const question = { permissions: permissionsOf(operation, loaded.configuration), ...place };
  const snapshot = await readAccess(loaded);
  const { via, client } = options;
  return { question, snapshot, context: { via, client, now: Date.now() } };
}

/** `access check`: whether a user may do something, and by which entry. */
export async function checkAccess(
  username: string,
  operation: string,
  where: string,
  options: QuestionOptions,
): Promise<void> {
  const { question: asked, snapshot, context } = await readQuestion(operation, where, options);
  const { permissions, database, table } = asked;
  const permission = permissions.join(" and ");
  const decided = decidePlace(snapshot, username, asked, context);
  const reason: Answer = obstacleOf(snapshot, username) ?? decided.reason;
  const allowed = reason === "allowed";
  const hint = reason === "no_grant" ? hintFor(snapshot, username, asked) : "";
  const explanation = explain(reason, decided) + hint;
  if (options.json) {
    const { grant: _, approvals: __, ...decision } = decided;
    const question = { username, permission, database, ...(table === undefined ? {} : { table }) };
    const limits = allowed ? viewLimits(decided) : {};
    printJson({ ...question, ...decision, allowed, reason, ...limits, explanation });
  } else {
    const outcome = allowed ? "allowed" : "denied";
    print(`${outcome}: ${username} ${permission} on ${where}: ${explanation}`);
  }
  if (!allowed) process.exitCode = FAILURE;
}

/** `access who`: everybody who may do something, by which entry and within which limits. */
export async function whoMay(
  operation: string,
  where: string,
  options: QuestionOptions,
): Promise<void> {
  const { question, snapshot, context } = await readQuestion(operation, where, options);
  const found = snapshot.grants
    .keys()
    .filter((username) => obstacleOf(snapshot, username) === undefined)
    .flatMap((username) =>
      waysTo(snapshot, username, question, context).map((way) => ({ username, way })),
    )
    .toArray();
  if (options.json) {
    return printJson(
      found.map(({ username, way }) => {
        const { role, entry } = way;
        return { username, role, entry, ...viewLimits(way) };
      }),
    );
  }
  const head = ["USERNAME", "ROLE", "ENTRY", "LIMITS"];
  printList(found, {}, head, ({ username, way: { role, entry, grant } }) => [
    ...[username, String(role), String(entry)],
    (grant && limitsInWords(grant)) || "-",
  ]);
}
