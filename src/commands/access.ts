import { Argument, Command, InvalidArgumentError } from "commander";
import type { Plan } from "../access/access-rules.ts";
import { planGrant, planRevoke } from "../access/administration.ts";
import type { Decision } from "../access/decision.ts";
import { isDatabaseOrEvery, isExternalUsername } from "../access/identifiers.ts";
import { decideAll } from "../access/policy.ts";
import { EVERY_DATABASE, isRole, type Role, roles } from "../access/roles.ts";
import { accessList, type Snapshot } from "../access/snapshot.ts";
import type { Configuration } from "../config/schema.ts";
import { batchKey } from "../query/grammar.ts";
import { definitions, permissionsOfAll } from "../query/operations.ts";
import {
  isPermissionClass,
  type PermissionClass,
  permissionClasses,
} from "../query/permissions.ts";
import { Refusal } from "../refusal.ts";
import { didYouMean } from "../suggestion.ts";
import { changeAccess, readAccess } from "./operator.ts";
import { type CommonOptions, loadFor, withCommonOptions, withHouseStyle } from "./options.ts";
import { FAILURE, print, printJson, printList, UsageError } from "./output.ts";

function requireDatabase(database: string): void {
  if (!isDatabaseOrEvery(database)) throw new Refusal("invalid_database");
}

async function grant(
  username: string,
  database: string,
  role: Role,
  options: CommonOptions & { force?: true },
): Promise<void> {
  const loaded = loadFor(options);
  requireDatabase(database);
  const plan: Plan = (current) => planGrant(current, "operator", { username, database, role });
  await changeAccess(loaded, { username }, plan, options);
  print(`${username} is ${role} on ${database}.`);
}

async function revoke(
  username: string,
  database: string,
  options: CommonOptions & { force?: true },
): Promise<void> {
  const loaded = loadFor(options);
  requireDatabase(database);
  const plan: Plan = (current) => planRevoke(current, "operator", username, database);
  const snapshot = await changeAccess(loaded, { username, database }, plan, options);
  const rest = accessList(snapshot, username).map((entry) => `${entry.database}:${entry.role}`);
  print(
    `${username} has no entry for ${database} any more; what is left: ${rest.join(" ") || "-"}`,
  );
}

async function list(options: CommonOptions & { json?: true }): Promise<void> {
  const snapshot = await readAccess(loadFor(options));
  const entries = [...snapshot.grants.keys()].flatMap((username) =>
    accessList(snapshot, username).map(({ database, role }) => ({ username, database, role })),
  );
  const head = ["USERNAME", "DATABASE", "ROLE"];
  printList(entries, options, head, ({ username, database, role }) => [username, database, role]);
}

/** @throws InvalidArgumentError that says which roles there are, and which was meant */
function readRole(text: string): Role {
  if (isRole(text)) return text;
  const message = `Allowed: ${roles.join(", ")}${didYouMean(text, roles)}.`;
  throw new InvalidArgumentError(message);
}

/** The rights that an operation needs, by its key in a query or by a right's own name. */
function permissionsOf(operation: string, { query }: Configuration): readonly PermissionClass[] {
  const own = Object.entries(definitions).map(([name, operation]) => [
    name,
    permissionsOfAll(operation),
  ]);
  const configured = Object.entries(query.operations).map(([name, right]) => [name, [right]]);
  const known = new Map<string, readonly PermissionClass[]>(
    Object.entries(Object.fromEntries([...own, ...configured])),
  );
  const wanted = operation.toLowerCase();
  if (wanted === batchKey.toLowerCase()) {
    const problem = `a ${batchKey} needs what its elements need; ask for each of them`;
    throw new UsageError(problem);
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

function answerFor(snapshot: Snapshot, username: string, { reason }: Decision): Answer {
  const user = snapshot.users.get(username);
  // External users need no record: their own authorization server knows them.
  if (user === undefined && !isExternalUsername(username)) return "user_not_found";
  return user?.disabled ? "user_disabled" : reason;
}

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

function explain(answer: Answer, decided: Decision): string {
  const { role, entry } = decided;
  const deciding = `${role} by the entry for ${entry}`;
  if (answer === "allowed") return deciding;
  const explanation = explanations[answer] ?? decided.message ?? answer;
  return answer === "role_insufficient" ? `${explanation}: ${deciding}` : explanation;
}

async function check(
  username: string,
  operation: string,
  database: string,
  options: CommonOptions & { json?: true },
): Promise<void> {
  const loaded = loadFor(options);
  requireDatabase(database);
  const permissions = permissionsOf(operation, loaded.configuration);
  const permission = permissions.join(" and ");
  const snapshot = await readAccess(loaded);
  const subject = { username, tokenDatabase: EVERY_DATABASE };
  const decision = decideAll(snapshot, subject, permissions, database);
  const reason = answerFor(snapshot, username, decision);
  const allowed = reason === "allowed";
  const explanation = explain(reason, decision);
  if (options.json) {
    printJson({ username, permission, database, ...decision, allowed, reason, explanation });
  } else {
    print(
      `${allowed ? "allowed" : "denied"}: ${username} ${permission} on ${database}: ${explanation}`,
    );
  }
  if (!allowed) process.exitCode = FAILURE;
}

/** `gatehouse access`: the grants in the access file. */
export function accessCommand(): Command {
  const access = withHouseStyle(new Command("access")).description(
    "grant and revoke roles, and ask what they allow",
  );
  withCommonOptions(access.command("grant"))
    .description("give a user a role on a database, or on * for every database")
    .argument("<username>", "the user")
    .argument("<database>", "the database, or * for every one")
    .addArgument(
      new Argument("<role>", "what the user may do there").choices(roles).argParser(readRole),
    )
    .option("--force", "also where the last administrator or Owner is lowered")
    .action(grant);
  withCommonOptions(access.command("revoke"))
    .description("take a user's role on a database away")
    .argument("<username>", "the user")
    .argument("<database>", "the database of the entry, or * for the entry for every one")
    .option("--force", "also from the last administrator or Owner")
    .action(revoke);
  withCommonOptions(access.command("list"))
    .description("list who has which role where")
    .option("--json", "as JSON")
    .action(list);
  withCommonOptions(access.command("check"))
    .description("say whether a user may do something, and which entry decides")
    .argument("<username>", "the user")
    .argument("<operation>", "such as Select, or a right such as SELECT")
    .argument("<database>", "where it would be done")
    .option("--json", "as JSON")
    .action(check);
  return access;
}
