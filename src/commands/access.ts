/** `gatehouse access`: grant, revoke and list entries; the other subcommands are loaded on demand. */
import { Argument, type Command, InvalidArgumentError, Option } from "commander";
import type { Plan } from "../access/access-rules.ts";
import { entriesIn, prefixOf } from "../access/entries.ts";
import { limitsInWords, readCondition, readEntry, viewEntry } from "../access/entry-view.ts";
import type { Grant } from "../access/grant.ts";
import { entryOddities } from "../access/oddities.ts";
import { entryKeys, entryRoles } from "../access/records.ts";
import type { EntryRole } from "../access/roles.ts";
import { grantsOf } from "../access/snapshot.ts";
import { actions } from "../administration/actions.ts";
import { didYouMean } from "../suggestion.ts";
import { missingNames } from "./database-schema.ts";
import { loadFor } from "./load.ts";
import { changeAccess, entriesInWords, readAccess } from "./operator.ts";
import {
  type CommonOptions,
  commandGroup,
  readCount,
  readExpiry,
  readNames,
  readPlace,
  subcommand,
} from "./options.ts";
import { print, printJson, printList, UsageError, warn } from "./output.ts";

/** @throws InvalidArgumentError that lists the roles and suggests the closest one */
function readRole(text: string): EntryRole {
  const role = entryRoles.find((known) => known === text);
  if (role !== undefined) return role;
  const message = `Allowed: ${entryRoles.join(", ")}${didYouMean(text, entryRoles)}.`;
  throw new InvalidArgumentError(message);
}

function readRights(text: string): string[] {
  return readNames(text.toUpperCase());
}

function readFilter(text: string, earlier: readonly object[] = []): readonly object[] {
  const condition = readCondition(text);
  if (condition !== undefined) return [...earlier, condition];
  throw new InvalidArgumentError(
    "allowed: one condition, such as 'tenant = @tenant', 'size < 5' or 'region IN (eu, us)'; a further one takes a --row-filter of its own, and text that is not one word stands in quotes",
  );
}

type EntryField = (typeof entryKeys)[keyof typeof entryKeys]["field"];

interface GrantOptions extends CommonOptions, Partial<Record<EntryField, unknown>> {
  readonly beside?: true;
  readonly force?: true;
}

function keysOf(role: string, options: GrantOptions): Record<string, unknown> {
  const keys = Object.entries(entryKeys).map(([key, { field }]) => [key, options[field]]);
  return { role, ...Object.fromEntries(keys.filter(([, value]) => value !== undefined)) };
}

async function grantAccess(
  username: string,
  where: string,
  role: EntryRole,
  options: GrantOptions,
): Promise<void> {
  const loaded = loadFor(options);
  const place = readPlace(where);
  const isBeside = options.beside === true;
  if (isBeside && options.expires === undefined) {
    throw new UsageError("--beside leaves the lasting entry: say by --expires when this one ends");
  }
  const grant = readEntry({ username, ...place }, keysOf(role, options));
  const plan: Plan = (current) =>
    actions.grant.plan(current, "operator", { username, grant, isBeside }, loaded.configuration);
  const snapshot = await changeAccess(loaded, { username, database: where }, plan, options);
  const limits = limitsInWords(grant);
  for (const odd of entryOddities(snapshot, grant, Date.now())) {
    warn(odd);
  }
  print(`${username} is ${role} on ${where}${limits === "" ? "" : `: ${limits}`}.`);
  const about = `the entry of ${username} for ${where}`;
  for (const missing of await missingNames(loaded, [[about, grant]])) warn(missing);
}

async function revokeAccess(
  username: string,
  where: string,
  options: CommonOptions & { force?: true },
): Promise<void> {
  const loaded = loadFor(options);
  const place = { username, ...readPlace(where) };
  const plan: Plan = (current) =>
    actions.revoke.plan(current, "operator", place, loaded.configuration);
  const snapshot = await changeAccess(loaded, { username, database: where }, plan, options);
  const left = entriesInWords(snapshot, username);
  print(`${username} has no entry for ${where} any more; what is left: ${left}`);
}

/** True for an entry that names the table or the same pattern, or has a pattern that matches it. */
function concernsTable({ tables = [] }: Grant, table: string): boolean {
  return tables.some((known) => {
    const prefix = prefixOf(known);
    return known === table || (prefix !== undefined && table.startsWith(prefix));
  });
}

interface ListOptions extends CommonOptions {
  readonly user?: string;
  readonly database?: string;
  readonly table?: string;
}

/** `access list`: all entries, or those of a user, a database or a table. */
async function listAccess(options: ListOptions): Promise<void> {
  const { user, database, table } = options;
  const snapshot = await readAccess(loadFor(options));
  const [name, place = database] = table?.split(".", 2).reverse() ?? [];
  const isMeant = (grant: Grant) =>
    [database, place].every((one) => one === undefined || grant.database === one) &&
    (name === undefined || concernsTable(grant, name));
  const names = user === undefined ? snapshot.grants.keys() : [user].values();
  const entries = [...names.flatMap((name) => entriesIn(grantsOf(snapshot, name)).filter(isMeant))];
  if (options.json) {
    return printJson(entries.map((grant) => ({ username: grant.username, ...viewEntry(grant) })));
  }
  const isPlain = entries.every((one) => one.tables === undefined && limitsInWords(one) === "");
  const head = ["USERNAME", "DATABASE", "ROLE", ...(isPlain ? [] : ["TABLES", "LIMITS"])];
  printList(entries, {}, head, (grant) => [
    ...[grant.username, grant.database, grant.role],
    ...(isPlain ? [] : [grant.tables?.join(", ") ?? "-", limitsInWords(grant) || "-"]),
  ]);
}

const questions = () => import("./access-questions.ts");
const versions = () => import("./access-versions.ts");

const place = "<database>[.<table>]; * for every database, * at the end of a name for many tables";

function addGrant(access: Command): void {
  subcommand(
    access,
    "grant",
    "give a user an entry for a database or a table, in the place of what is there",
  )
    .argument("<username>", "the user")
    .argument("<place>", place)
    .addArgument(
      new Argument("<role>", "what the user may do there").choices(entryRoles).argParser(readRole),
    )
    .option("--columns <names>", "the only columns that may be named, such as id,status", readNames)
    .option("--writable-columns <names>", "the only ones that may be written", readNames)
    .option(
      "--row-filter <condition>",
      "rows that count, such as 'tenant = @tenant' or 'region IN (eu, us)'; may be repeated",
      readFilter,
    )
    .option("--require-where <names>", "columns that Update and Delete pin", readNames)
    .option("--max-rows <n>", "rows of an answer", readCount)
    .option("--max-changes <n>", "rows that one query changes", readCount)
    .option("--require-approval <rights>", "rights that need approval, as DELETE,DROP", readRights)
    .option("--approvers <usernames>", "who approves; else who may grant there", readNames)
    .option(
      "--expires <time>",
      "when it ends: 2h, 30d, tomorrow, 2026-12-24, 2026-12-24T18:00:00Z",
      readExpiry,
    )
    .option("--beside", "leave the lasting entry for the place, and add this one, which expires")
    .option("--force", "also where the last administrator or Owner is lowered")
    .action(grantAccess);
}

function addEntryCommands(access: Command): void {
  addGrant(access);
  subcommand(
    access,
    "revoke",
    "take a user's entry for a database or a table away, whatever it says",
  )
    .argument("<username>", "the user")
    .argument("<place>", place)
    .option("--force", "also from the last administrator or Owner")
    .action(revokeAccess);
  subcommand(access, "list", "list who has which role where")
    .option("--user <username>", "only this user's entries")
    .option(
      "--database <database>",
      "only those that name this very database; * for those on every one",
    )
    .option(
      "--table <table>",
      "only those that name this table, or <database>.<table>, or have a pattern that fits it",
    )
    .option("--json", "as JSON")
    .action(listAccess);
}

function viaOption(): Option {
  const description = "the way in that boundaries are asked for";
  return new Option("--via <via>", description).choices(["query", "mcp"]).default("query");
}

const clientOption = ["--client <client_id>", "the OAuth client by which it would come"] as const;

function addQuestions(access: Command): void {
  subcommand(access, "check", "say whether a user may do something, and which entry decides")
    .argument("<username>", "the user")
    .argument("<operation>", "such as Select, or a right such as SELECT")
    .argument("<place>", place)
    .addOption(viaOption())
    .option(...clientOption)
    .option("--json", "as JSON")
    .action(async (username, operation, place, options) =>
      (await questions()).checkAccess(username, operation, place, options),
    );
  subcommand(
    access,
    "who",
    "list everybody who may do something, by which entry and within which limits",
  )
    .argument("<operation>", "such as Delete, or a right such as DELETE")
    .argument("<place>", place)
    .addOption(viaOption())
    .option(...clientOption)
    .option("--json", "as JSON")
    .action(async (operation, place, options) =>
      (await questions()).whoMay(operation, place, options),
    );
}

function addPolicyCommands(access: Command): void {
  const file = ["--file <access file>", "another access file than the gateway's own"] as const;
  subcommand(
    access,
    "explain",
    "decide on the query on standard input, and print the bytes that would go up",
  )
    .argument("<username>", "the user")
    .addOption(viaOption())
    .option(...clientOption)
    .option(...file)
    .option("--json", "as JSON")
    .action(async (username, options) => (await questions()).explainQuery(username, options));
  subcommand(access, "diff", "say who gains and loses what from one access file to another")
    .argument("<old>", "an access file")
    .argument("<new>", "another one")
    .option("--json", "as JSON")
    .action(async (old, current, options) =>
      (await questions()).compareAccess(old, current, options),
    );
  subcommand(access, "test", "hold the access file against what a file expects of it, for CI")
    .argument("<file>", "TOML with [[expect]]: user, via, client, query (JSON), allowed, code")
    .option(...file)
    .option("--json", "as JSON")
    .action(async (file, options) => (await questions()).testAccess(file, options));
}

function addVersionCommands(access: Command): void {
  const force = ["--force", "also if the last administrator or Owner is lost"] as const;
  const dryRun = ["--dry-run", "only say who would gain and lose what"] as const;
  subcommand(
    access,
    "export",
    "print grants, boundaries and attributes in the store, to be edited and applied",
  ).action(async (options) => (await versions()).exportAccess(options));
  subcommand(
    access,
    "apply",
    "put an edited export in force, unless something was changed since it was made",
  )
    .argument("<file>", "the export")
    .option(...dryRun)
    .option(...force)
    .action(async (file, options) => (await versions()).applyAccess(file, options));
  subcommand(access, "edit", "export, open $EDITOR, and apply")
    .option(...force)
    .action(async (options) => (await versions()).editAccess(options));
  subcommand(
    access,
    "history",
    "list the last versions in the store: when, by whom, and what was changed",
  )
    .option("--last <count>", "how many", readCount, 50)
    .option("--json", "as JSON")
    .action(async (options) => (await versions()).listVersions(options));
  subcommand(
    access,
    "rollback",
    "put grants, boundaries and attributes of an earlier version in force",
  )
    .argument("<version>", "a number that `access history` shows")
    .option(...dryRun)
    .option(...force)
    .action(async (version, options) => (await versions()).rollBack(version, options));
}

export function accessCommand(): Command {
  const access = commandGroup("access", "grant and revoke roles, and ask what they allow");
  addEntryCommands(access);
  addQuestions(access);
  addPolicyCommands(access);
  addVersionCommands(access);
  return access;
}
