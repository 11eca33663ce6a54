import type { Command } from "commander";
import type { Plan } from "../core/access/access-rules.ts";
import { visibleGroups } from "../core/access/administration.ts";
import { groupHolder, userHolder } from "../core/access/grant.ts";
import { isAnyUsername, isLocalGroupName } from "../core/access/roles.ts";
import { isKnownHolder } from "../core/access/snapshot.ts";
import { actions } from "../core/administration/actions.ts";
import { Refusal } from "../core/base/refusal.ts";
import { changeAccess, entriesInWords, namedRefusal, readAccess } from "./operator.ts";
import { type CommonOptions, commandGroup, defineCommands, loadFor } from "./options.ts";
import { print, printList, UsageError } from "./output.ts";

interface GroupOptions extends CommonOptions {
  readonly add?: readonly string[];
  readonly remove?: readonly string[];
}

function requireLocalName(name: string): void {
  if (!isLocalGroupName(name)) throw new Refusal("invalid_group");
}

async function list(options: CommonOptions): Promise<void> {
  const snapshot = await readAccess(loadFor(options));
  const groups = visibleGroups(snapshot, "operator");
  printList(groups, options, ["GROUP", "MEMBERS", "ACCESS"], ({ name, members }) => [
    name,
    // Only tokens tell the members of an issuer's group.
    members?.join(", ") || "-",
    entriesInWords(snapshot, groupHolder(name)),
  ]);
}

async function set(name: string, { add = [], remove = [], ...options }: GroupOptions) {
  requireLocalName(name);
  if (!add.every(isAnyUsername)) throw new Refusal("invalid_username");
  const both = add.find((member) => remove.includes(member));
  if (both !== undefined) throw new UsageError(`${both} cannot be both added and removed`);
  const loaded = loadFor(options);
  const plan: Plan = (current) => {
    const known = current.groups.get(name)?.members ?? [];
    const stranger = remove.find((member) => !known.includes(member));
    if (stranger !== undefined) throw new Error(`${stranger} is not a member of ${name}`);
    const unknown = add.find(
      (name) => !known.includes(name) && !isKnownHolder(current, userHolder(name)),
    );
    if (unknown !== undefined) {
      throw namedRefusal("user_not_found", { holder: userHolder(unknown), snapshot: current });
    }
    const members = [...known.filter((member) => !remove.includes(member)), ...add];
    return actions.setGroup.plan(current, "operator", { name, members }, loaded.configuration);
  };
  const { groups } = await changeAccess(loaded, { holder: groupHolder(name) }, plan, options);
  const members = groups.get(name)?.members.join(", ") || "no members";
  print(`The group ${name} has ${members}.`);
}

async function remove(name: string, options: GroupOptions): Promise<void> {
  requireLocalName(name);
  const loaded = loadFor(options);
  const plan: Plan = (current) =>
    actions.removeGroup.plan(current, "operator", { name }, loaded.configuration);
  await changeAccess(loaded, { holder: groupHolder(name) }, plan, options);
  print(`Removed the group ${name} and its entries.`);
}

const help = `
list --json     list groups with their members and entries
set --force     add a local group, or change its members
  <name>        1 to 63 of letters, digits, _ -
  --add <username>  a user who joins, such as rita or staff:bob; may be repeated
  --remove <username>  a member who leaves; may be repeated
remove --force  remove a local group and its entries
  <name>        the group
`;

function collect(text: string, earlier: readonly string[] = []): string[] {
  return [...earlier, text];
}

export function groupCommand(): Command {
  const refinements = { add: { add: collect }, remove: { add: collect } };
  const commands = defineCommands(help, { list, set, remove }, refinements);
  return commandGroup("group", "list, change and remove groups of users", commands);
}
