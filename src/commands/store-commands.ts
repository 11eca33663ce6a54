import type { Command } from "commander";
import { commandGroup, subcommand } from "./options.ts";

/** Loaded on demand, since no other command needs a store. */
const actions = () => import("./store-actions.ts");

export function storeCommand(): Command {
  const store = commandGroup("store", "make, fill and watch what several replicas share");
  subcommand(
    store,
    "init",
    "make the tables, the key file, the signing keys and the first administrator",
  )
    .option("--admin <name>", "what the first administrator is called (default: admin)")
    .action(async (options) => (await actions()).init(options));
  subcommand(store, "status", "show the version of the store, and which replicas have applied it")
    .option("--json", "as JSON")
    .action(async (options) => (await actions()).status(options));
  subcommand(
    store,
    "import",
    "replace the users, grants and boundaries of the store by those of an access file, and add the revocations, signing keys and connected apps of this host",
  )
    .argument("<file>", "the access file")
    .option("--force", "also if the last administrator or Owner is lost")
    .action(async (file, options) => (await actions()).importFile(file, options));
  subcommand(
    store,
    "export",
    "print users, grants and boundaries as an access file, with password hashes",
  ).action(async (options) => (await actions()).exportAll(options));
  subcommand(
    store,
    "rekey",
    "encrypt anew what the store holds encrypted, by the first line of store.key_file",
  ).action(async (options) => (await actions()).rekey(options));
  return store;
}
