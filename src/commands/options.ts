import type { Command } from "commander";
import type { ChangeOptions, Plan } from "../access/access-rules.ts";
import { AccessFileError, readAccessBytes, readAgain } from "../access/parse.ts";
import type { Snapshot } from "../access/snapshot.ts";
import { changeAccessFile } from "../access/write.ts";
import { type LoadedConfiguration, type LoadOptions, loadConfiguration } from "../config/load.ts";
import { invocation } from "../product.ts";

/** Options that every command takes. */
export interface CommonOptions {
  readonly config?: string;
}

/** Adds the options that every command takes. */
export function withCommonOptions(command: Command): Command {
  return command.option("--config <file>", "read the configuration from this file");
}

/** Options that say which configuration is loaded, and what overrides it. */
export type ConfigurationOptions = CommonOptions & {
  readonly host?: string;
  readonly port?: number;
};

/** Where a command looks for the configuration. */
export function searchOf({ config, host, port }: ConfigurationOptions): LoadOptions {
  return { config, host, port, env: process.env, cwd: process.cwd() };
}

/** Loads the configuration as the service itself would, and prints its warnings. */
export function loadFor(options: ConfigurationOptions): LoadedConfiguration {
  const loaded = loadConfiguration(searchOf(options));
  for (const warning of loaded.warnings) process.stderr.write(`warning: ${warning}\n`);
  return loaded;
}

/**
 * Changes users and grants as the operator.
 *
 * @returns the state as written
 * @throws Refusal as of `AccessRules.change`
 */
export async function changeAccess(
  { configuration: { auth } }: LoadedConfiguration,
  plan: Plan,
  options?: ChangeOptions,
): Promise<Snapshot> {
  return (await changeAccessFile(auth.access_control_file, plan, options)).snapshot;
}

/**
 * Reads the access file as the gateway would.
 *
 * @param options.checkRead also refuse a file that others may read; by default as configured
 * @throws AccessFileError, UnsafeFileError, or an error that says what makes the file
 */
export async function readAccess(
  { configuration: { auth } }: LoadedConfiguration,
  { checkRead = auth.check_permissions } = {},
): Promise<Snapshot> {
  const file = auth.access_control_file;
  try {
    const bytes = await readAccessBytes(file, { checkRead });
    return (await readAgain(bytes, file, undefined)).snapshot;
  } catch (error) {
    const isMissing = error instanceof Error && "code" in error && error.code === "ENOENT";
    if (!isMissing) throw error;
    const help = `is missing: \`${invocation} serve\` makes it on its first start, and so does \`${invocation} user add <name> --admin\``;
    throw new AccessFileError(file, [{ reason: help }]);
  }
}
