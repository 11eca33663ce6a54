import { Command } from "commander";
import { withCommonOptions, withHouseStyle } from "./options.ts";

/** Loaded once one of them is asked for: no other command needs a store. */
const actions = () => import("./store-actions.ts");

/** `gatehouse store`: what several replicas share. */
export function storeCommand(): Command {
  const store = withHouseStyle(new Command("store")).description(
    "make, fill and watch what several replicas share",
  );
  withCommonOptions(store.command("init"))
    .description("make the tables, the key file, the signing keys and the first administrator")
    .option("--admin <name>", "what the first administrator is called (default: admin)")
    .action(async (options) => (await actions()).init(options));
  withCommonOptions(store.command("status"))
    .description("show the version of the store, and which replicas have applied it")
    .option("--json", "as JSON")
    .action(async (options) => (await actions()).status(options));
  withCommonOptions(store.command("import"))
    .description(
      "replace the users, grants and boundaries of the store by those of an access file, and add the revocations, signing keys and connected apps of this host",
    )
    .argument("<file>", "the access file")
    .option("--force", "also if the last administrator or Owner is lost")
    .action(async (file, options) => (await actions()).importFile(file, options));
  withCommonOptions(store.command("export"))
    .description("print users, grants and boundaries as an access file, with password hashes")
    .action(async (options) => (await actions()).exportAll(options));
  withCommonOptions(store.command("rekey"))
    .description("encrypt anew what the store holds encrypted, by the first line of store.key_file")
    .action(async (options) => (await actions()).rekey(options));
  return store;
}
