import { Argument, type Command, Option } from "commander";
import { entryRoles } from "../access/limit-fields.ts";
import { compareAccess } from "./access-diff.ts";
import {
  grantAccess,
  listAccess,
  readCount,
  readFilter,
  readNames,
  readRights,
  readRole,
  revokeAccess,
} from "./access-entries.ts";
import { explainQuery, testAccess } from "./access-queries.ts";
import { checkAccess, whoMay } from "./access-questions.ts";
import { commandGroup, readExpiry, subcommand } from "./options.ts";

/** Loaded once one of them is asked for: no other command of these needs a store. */
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

/** The way in, for which boundaries may be. */
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
    .action(checkAccess);
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
    .action(whoMay);
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
    .action(explainQuery);
  subcommand(access, "diff", "say who gains and loses what from one access file to another")
    .argument("<old>", "an access file")
    .argument("<new>", "another one")
    .option("--json", "as JSON")
    .action(compareAccess);
  subcommand(access, "test", "hold the access file against what a file expects of it, for CI")
    .argument("<file>", "TOML with [[expect]]: user, via, client, query (JSON), allowed, code")
    .option(...file)
    .option("--json", "as JSON")
    .action(testAccess);
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

/** `gatehouse access`: the entries of the access file, and what they allow. */
export function accessCommand(): Command {
  const access = commandGroup("access", "grant and revoke roles, and ask what they allow");
  addEntryCommands(access);
  addQuestions(access);
  addPolicyCommands(access);
  addVersionCommands(access);
  return access;
}
