import { type Command, InvalidArgumentError } from "commander";
import type { Plan } from "../core/access/access-rules.ts";
import { entriesIn, patternPrefix } from "../core/access/entries.ts";
import {
  entryInWords,
  limitsInWords,
  readCondition,
  readEntry,
  viewEntry,
} from "../core/access/entry-view.ts";
import {
  type Grant,
  groupHolder,
  type Holder,
  holderName,
  holderText,
  userHolder,
  writtenHolder,
} from "../core/access/grant.ts";
import { allEntries } from "../core/access/groups.ts";
import { lintEntry } from "../core/access/lint.ts";
import { questionSetting } from "../core/access/policy.ts";
import { entryKeys, entryRoles } from "../core/access/records.ts";
import { type EntryRole, isGroupName } from "../core/access/roles.ts";
import { isKnownHolder } from "../core/access/snapshot.ts";
import { actions } from "../core/administration/actions.ts";
import { Refusal } from "../core/base/refusal.ts";
import { didYouMean } from "../core/base/suggestion.ts";
import { placeName, splitPlace } from "../core/query/names.ts";
import { missingNames } from "./database-schema.ts";
import {
  changeAccess,
  entriesInWords,
  namedRefusal,
  readAccess,
  roleInWords,
  warnIfUnknown,
} from "./operator.ts";
import {
  type CommonOptions,
  commandGroup,
  defineCommands,
  loadFor,
  readCount,
  readExpiry,
  readNames,
  readPlace,
  readTokenGroups,
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
    "Allowed: one condition, such as 'tenant = @tenant', 'size < 5' or 'region IN (eu, us)'. Repeat --row-filter for more. Quote text of more than one word.",
  );
}

type EntryField = (typeof entryKeys)[keyof typeof entryKeys]["field"];

interface GrantOptions extends CommonOptions, Partial<Record<EntryField, unknown>> {
  readonly beside?: true;
}

async function grantAccess(
  holder: Holder,
  where: string,
  role: EntryRole,
  options: GrantOptions,
): Promise<void> {
  const loaded = loadFor(options);
  const target = readPlace(where, loaded.configuration);
  const keepsOther = options.beside === true;
  if (keepsOther && options.expires === undefined) {
    throw new UsageError(
      "--beside adds a temporary entry to the permanent one, so it needs --expires",
    );
  }
  const keys = Object.entries(entryKeys)
    .map(([key, { field }]) => [key, options[field]])
    .filter(([, value]) => value !== undefined);
  const grant = readEntry({ holder, ...target }, { role, ...Object.fromEntries(keys) });
  const plan: Plan = (current) =>
    actions.grant.plan(current, "operator", { grant, keepsOther }, loaded.configuration);
  const snapshot = await changeAccess(loaded, { holder, database: where }, plan, options);
  const setting = questionSetting(loaded.configuration);
  for (const problem of lintEntry(snapshot, grant, setting)) warn(problem);
  print(entryInWords(grant));
  const about = `the entry of ${holderName(holder)} for ${where}`;
  for (const missing of await missingNames(loaded, snapshot, [[about, grant]])) warn(missing);
}

async function revokeAccess(holder: Holder, where: string, options: CommonOptions) {
  const loaded = loadFor(options);
  const target = { holder, ...readPlace(where, loaded.configuration) };
  const plan: Plan = (current) =>
    actions.revoke.plan(current, "operator", target, loaded.configuration);
  const snapshot = await changeAccess(loaded, { holder, database: where }, plan, options);
  const entries = entriesInWords(snapshot, holder);
  const left = entries === "-" ? "none" : entries;
  print(`Removed the entry of ${holderName(holder)} for ${where}. Remaining entries: ${left}`);
}

interface ListOptions extends CommonOptions {
  readonly effective?: string;
  readonly groups?: readonly string[];
}

async function listEffective(username: string, options: ListOptions): Promise<void> {
  const { effectiveAccess, effectiveLimits, operationsInWords, viewEffective, wayInWords } =
    await import("../core/access/effective.ts");
  const { database, groups = [] } = options;
  const loaded = loadFor(options);
  const snapshot = await readAccess(loaded);
  const holder = userHolder(username);
  const isNamed = [...snapshot.groups.values()].some(({ members }) => members.includes(username));
  if (!isKnownHolder(snapshot, holder) && !isNamed) {
    throw namedRefusal("user_not_found", { holder, snapshot });
  }
  const setting = questionSetting(loaded.configuration);
  const rows = effectiveAccess(snapshot, { username, groups }, setting);
  const selected = rows.filter((row) => database === undefined || row.database === database);
  const head = ["PLACE", "OPERATIONS", "LIMITS", "VIA", "ENTRY"];
  const toCells = (row: (typeof rows)[number]) => [
    placeName(row.database, row.table),
    operationsInWords(row),
    effectiveLimits(row) || "-",
    wayInWords(row),
    row.entry,
  ];
  printList(selected, options, head, toCells, viewEffective);
}

async function listAccess(options: ListOptions): Promise<void> {
  const { effective, groups } = options;
  if (effective !== undefined) {
    if ((options.user ?? options.table) !== undefined) {
      throw new UsageError("--effective lists all places of one user; it takes only --database");
    }
    return listEffective(effective, options);
  }
  if (groups !== undefined) throw new UsageError("--groups needs --effective <user>");
  const { user, database, table } = options;
  const snapshot = await readAccess(loadFor(options));
  const names = (grant: Grant, name: string) =>
    grant.tables?.some((pattern) => {
      const prefix = patternPrefix(pattern);
      return pattern === name || (prefix !== undefined && name.startsWith(prefix));
    }) ?? false;
  const isSelected = (grant: Grant) => {
    if (database !== undefined && grant.database !== database) return false;
    if (table === undefined || names(grant, table)) return true;
    const place = splitPlace(table);
    return (
      place.table !== undefined && place.database === grant.database && names(grant, place.table)
    );
  };
  const all =
    user === undefined
      ? snapshot.grants.values().flatMap(entriesIn)
      : allEntries(snapshot, { username: user });
  const entries = [...all.filter(isSelected)];
  if (user !== undefined && entries.length === 0) warnIfUnknown(snapshot, user);
  if (database !== undefined && !snapshot.databases.has(database.toLowerCase())) {
    warn(`no entry names ${database}${didYouMean(database, snapshot.databases.values())}`);
  }
  const isPlain = entries.every((one) => one.tables === undefined && limitsInWords(one) === "");
  const head = ["USERNAME", "DATABASE", "ROLE", ...(isPlain ? [] : ["TABLES", "LIMITS"])];
  const toCells = (grant: Grant) => [
    holderText(grant.holder),
    grant.database,
    roleInWords(grant),
    ...(isPlain ? [] : [grant.tables?.join(", ") ?? "-", limitsInWords(grant) || "-"]),
  ];
  const toView = (grant: Grant) => ({ ...writtenHolder(grant.holder), ...viewEntry(grant) });
  printList(entries, options, head, toCells, toView);
}

const help = `
grant <username> <place> --force  grant a role, replacing the user's entry for the same place; repeat limits that it has
  <role>        the role on this place
  --group <group>  instead of <username>: a local group, or <prefix>:<group> of an issuer
  --columns <names>  only these columns, such as id,status
  --writable-columns <names>  only these columns can be written
  --row-filter <condition>  only these rows, such as 'tenant = @tenant' or 'region IN (eu, us)'; may be repeated
  --require-where <names>  columns that Update and Delete must compare with = or IN
  --max-rows <n>  most rows in a response
  --max-changes <n>  most rows that one query may change
  --require-approval <rights>  rights that need approval, such as DELETE,DROP
  --approvers <usernames>  who may approve, and groups as group:<name> (default: users who may grant here)
  --expires <time>  when the entry ends: 2h, 30d, tomorrow, 2026-12-24, 2026-12-24T18:00:00Z
  --beside      add a temporary entry to the permanent one; needs --expires
revoke <username> <place> --force  remove a user's entry for a database or table
  --group <group>  instead of <username>: a local group, or <prefix>:<group> of an issuer
list --json     list entries: user, database, role and limits
  --user <username>  only entries of this user and of the user's local groups
  --database <database>  only entries that name this database; * for entries on every database
  --table <table>  only entries that name or match this table or <database>.<table>
  --effective <user>  what this user may do by own entries, groups and boundaries together, one row for each place
  --groups <groups>  with --effective: groups that only the user's token knows, such as staff:a,staff:b; may be repeated
`;

/** With `--group`, commander passes no username. */
function ofHolder<Given extends unknown[]>(
  run: (holder: Holder, ...given: Given) => Promise<void>,
) {
  return function (this: Command, ...given: [string, ...Given]) {
    const { group } = this.opts<{ group?: string }>();
    const [username, ...others] = given;
    const actual =
      group === undefined ? [userHolder(username), ...others] : [groupHolder(group), ...given];
    return Reflect.apply(run, this, actual);
  };
}

function readGroup(text: string): string {
  if (!isGroupName(text)) throw new Refusal("invalid_group");
  return text;
}

/** Without `<username>`, which `--group` replaces. */
function replaceUsername(command: Command): void {
  const { registeredArguments: given } = command;
  command.on("option:group", () => Object.assign(command, { registeredArguments: given.slice(1) }));
}

function entryCommands(): Command[] {
  const runs = { grant: ofHolder(grantAccess), revoke: ofHolder(revokeAccess), list: listAccess };
  const [names, count] = [{ add: readNames }, { parse: readCount }];
  const commands = defineCommands(help, runs, {
    group: { parse: readGroup },
    columns: names,
    writableColumns: names,
    requireWhere: names,
    approvers: names,
    maxRows: count,
    maxChanges: count,
    expires: { parse: readExpiry },
    groups: { add: readTokenGroups },
    role: { choices: entryRoles, parse: readRole },
    rowFilter: { add: readFilter },
    requireApproval: { add: (text, earlier) => readNames(text.toUpperCase(), earlier) },
  });
  commands.forEach(replaceUsername);
  return commands;
}

/** @param name the subcommand on the command line; the others load only if it is not one of these */
export async function accessCommand(name?: string): Promise<Command> {
  const commands = entryCommands();
  if (!commands.some((command) => command.name() === name)) {
    const { questionCommands } = await import("./access-questions.ts");
    const { versionCommands } = await import("./access-versions.ts");
    for (const one of [...questionCommands(), ...versionCommands()]) commands.push(one);
  }
  return commandGroup("access", "grant and revoke roles, and check what they allow", commands);
}
