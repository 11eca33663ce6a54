import { Command } from "commander";
import { configuredCosts } from "../identity/hash.ts";
import { hashPassword } from "../identity/password.ts";
import { type CommonOptions, loadFor, withCommonOptions } from "./options.ts";
import { print } from "./output.ts";
import { readNewPassword } from "./password.ts";
import { withHouseStyle } from "./style.ts";

async function run(options: CommonOptions & { passwordStdin?: true }): Promise<void> {
  const { configuration } = loadFor(options);
  const password = await readNewPassword(
    "Password:",
    options.passwordStdin ?? false,
    configuration,
  );
  print(await hashPassword(password, configuredCosts(configuration)));
}

/** `gatehouse hash-password`: a hash to paste into the access file. */
export function hashPasswordCommand(): Command {
  return withCommonOptions(withHouseStyle(new Command("hash-password")))
    .description("print the hash of a password, to paste into the access file")
    .option("--password-stdin", "read the password from standard input")
    .action(run);
}
