/** `gatehouse access`: the parts that `access grant` does not need are loaded on demand. */
import { Argument, type Command, InvalidArgumentError } from "commander";
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
  placeArgument,
  readCount,
  readExpiry,
  readNames,
  readPlace,
  subcommand,
} from "./options.ts";
import { print, printList, UsageError, warn } from "./output.ts";

/** @throws InvalidArgumentError that lists the roles and suggests the closest one */
function readRole(text: string): EntryRole {
  const role = entryRoles.find((known) => known === text);
  if (role !== undefined) return role;
  const message = `Allowed: ${entryRoles.join(", ")}${didYouMean(text, entryRoles)}.`;
  throw new InvalidArgumentError(message);
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
  const keys = Object.entries(entryKeys)
    .map(([key, { field }]) => [key, options[field]])
    .filter(([, value]) => value !== undefined);
  const grant = readEntry({ username, ...place }, { role, ...Object.fromEntries(keys) });
  const plan: Plan = (current) =>
    actions.grant.plan(current, "operator", { username, grant, isBeside }, loaded.configuration);
  const snapshot = await changeAccess(loaded, { username, database: where }, plan, options);
  const limits = limitsInWords(grant);
  for (const odd of entryOddities(snapshot, grant, Date.now())) warn(odd);
  print(`${username} is ${role} on ${where}${limits === "" ? "" : `: ${limits}`}.`);
  const about = `the entry of ${username} for ${where}`;
  for (const missing of await missingNames(loaded, [[about, grant]])) warn(missing);
}

async function revokeAccess(username: string, where: string, options: CommonOptions) {
  const loaded = loadFor(options);
  const place = { username, ...readPlace(where) };
  const plan: Plan = (current) =>
    actions.revoke.plan(current, "operator", place, loaded.configuration);
  const snapshot = await changeAccess(loaded, { username, database: where }, plan, options);
  const left = entriesInWords(snapshot, username);
  print(`${username} has no entry for ${where} any more; what is left: ${left}`);
}

async function listAccess(options: CommonOptions): Promise<void> {
  const { user, database, table } = options;
  const snapshot = await readAccess(loadFor(options));
  const [name, place = database] = table?.split(".", 2).reverse() ?? [];
  const isOfTable = (known: string) => {
    const prefix = prefixOf(known);
    return known === name || (prefix !== undefined && name?.startsWith(prefix));
  };
  const isMeant = (grant: Grant) =>
    [database, place].every((one) => one === undefined || grant.database === one) &&
    (name === undefined || grant.tables?.some(isOfTable));
  const names = user === undefined ? snapshot.grants.keys() : [user].values();
  const entries = [...names.flatMap((name) => entriesIn(grantsOf(snapshot, name)).filter(isMeant))];
  const isPlain = entries.every((one) => one.tables === undefined && limitsInWords(one) === "");
  const head = ["USERNAME", "DATABASE", "ROLE", ...(isPlain ? [] : ["TABLES", "LIMITS"])];
  const cellsOf = (grant: Grant) => [
    ...[grant.username, grant.database, grant.role],
    ...(isPlain ? [] : [grant.tables?.join(", ") ?? "-", limitsInWords(grant) || "-"]),
  ];
  const viewOf = (grant: Grant) => ({ username: grant.username, ...viewEntry(grant) });
  printList(entries, options, head, cellsOf, viewOf);
}

function addEntryCommands(access: Command): void {
  subcommand(access, "grant")
    .description("give a user an entry for a database or a table, in the place of what is there")
    .argument("<username>", "the user")
    .argument(...placeArgument)
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
    .option(
      "--require-approval <rights>",
      "rights that need approval, as DELETE,DROP",
      (text: string) => readNames(text.toUpperCase()),
    )
    .option("--approvers <usernames>", "who approves; else who may grant there", readNames)
    .option(
      "--expires <time>",
      "when it ends: 2h, 30d, tomorrow, 2026-12-24, 2026-12-24T18:00:00Z",
      readExpiry,
    )
    .option("--beside", "leave the lasting entry for the place, and add this one, which expires")
    .option("--force", "also where the last administrator or Owner is lowered")
    .action(grantAccess);
  subcommand(access, "revoke")
    .description("take a user's entry for a database or a table away, whatever it says")
    .argument("<username>", "the user")
    .argument(...placeArgument)
    .option("--force", "also from the last administrator or Owner")
    .action(revokeAccess);
  subcommand(access, "list")
    .description("list who has which role where")
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

/** @param name the subcommand on the command line */
export async function accessCommand(name?: string): Promise<Command> {
  const access = commandGroup("access", "grant and revoke roles, and ask what they allow");
  addEntryCommands(access);
  if (access.commands.some((command) => command.name() === name)) return access;
  (await import("./access-questions.ts")).addQuestions(access);
  (await import("./access-versions.ts")).addVersionCommands(access);
  return access;
}
