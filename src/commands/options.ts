import { Argument, Command, Help, InvalidArgumentError, Option } from "commander";
import { tablePattern } from "../access/records.ts";
import { isDatabaseOrEvery } from "../access/roles.ts";
import { readMoment, unitMs } from "../clock.ts";
import { invocation } from "../product.ts";
import { Refusal } from "../refusal.ts";
import { failureLabel } from "./output.ts";

/** Formats errors as those of the gateway, and the usage line so that it can be typed as shown. */
export function withHouseStyle(command: Command): Command {
  return command
    .exitOverride()
    .showHelpAfterError("(add --help to see what is allowed)")
    .configureHelp({
      commandUsage: (command) =>
        new Help().commandUsage(command).replace(/^gatehouse\b/, invocation),
    })
    .configureOutput({
      outputError: (text, write) => write(text.replace(/^error:/, failureLabel())),
    });
}

/** Options that mean the same wherever a command has them. */
export interface CommonOptions {
  readonly config?: string;
  readonly json?: true;
  readonly force?: boolean;
  readonly passwordStdin?: true;
  readonly user?: string;
  readonly database?: string;
  readonly table?: string;
  readonly client?: string;
  readonly url?: string;
  readonly host?: string;
  readonly port?: number;
  /** An access file other than the gateway's own. */
  readonly file?: string;
}

/** An argument (`<name>`) or option (`--name`). Kinds that need more are built with commander. */
type Parameter =
  | Argument
  | Option
  | readonly [flags: string, description: string, parse?: (text: string) => unknown];

export const json = ["--json", "print JSON"] as const;
export const username = ["<username>", "the user"] as const;
export const passwordStdin = ["--password-stdin", "read the password from standard input"] as const;
export const forceReplace = [
  "--force",
  "allow this even if no administrator or Owner of a database is left",
] as const;
export const place = [
  "<place>",
  "<database>[.<table>]; * means every database, and a table may end in * to match a prefix",
] as const;

/** @param parameters in the order of the help; `--config` is added */
export function defineCommand(
  name: string,
  description: string,
  run: Parameters<Command["action"]>[0],
  parameters: readonly Parameter[] = [],
): Command {
  const command = withHouseStyle(new Command(name))
    .description(description)
    .option("--config <file>", "read the configuration from this file")
    .action(run);
  for (const parameter of parameters) {
    if (parameter instanceof Argument) command.addArgument(parameter);
    else if (parameter instanceof Option) command.addOption(parameter);
    else {
      const [flags, text, parse] = parameter;
      if (!flags.startsWith("-")) command.argument(flags, text);
      else if (parse === undefined) command.option(flags, text);
      else command.option(flags, text, parse);
    }
  }
  return command;
}

export function commandGroup(name: string, description: string, commands: readonly Command[]) {
  const group = withHouseStyle(new Command(name)).description(description);
  for (const command of commands) group.addCommand(command);
  return group;
}

/** A database or `*`, optionally with a table or a table pattern. */
export interface Place {
  readonly database: string;
  readonly table?: string;
}

/** Parses `main`, `main.tickets` or `*.customer_*`. */
export function readPlace(text: string): Place {
  const dot = text.indexOf(".");
  const database = dot === -1 ? text : text.slice(0, dot);
  if (!isDatabaseOrEvery(database)) throw new Refusal("invalid_database");
  if (dot === -1) return { database };
  const table = text.slice(dot + 1);
  if (!tablePattern.test(table)) throw new Refusal("invalid_table");
  return { database, table };
}

export function readNames(text: string): string[] {
  return text.trim() === "" ? [] : text.split(",").map((name) => name.trim());
}

export function readCount(text: string): number {
  if (/^[1-9]\d{0,14}$/.test(text)) return Number(text);
  throw new InvalidArgumentError("Allowed: a whole number from 1.");
}

const LONGEST_MS = 366 * 86_400_000;

/** Parses `90d` from now, or a future day or time. @throws InvalidArgumentError */
export function readExpiry(text: string): Date {
  const [, count = "", unit] = /^(\d{1,9})([a-z])$/.exec(text) ?? [];
  const ms = Number(count) * (unitMs.get(unit ?? "") ?? 0);
  if (unit !== undefined && !(ms > 0 && ms <= LONGEST_MS)) {
    throw new InvalidArgumentError("Allowed: at most 366d, written as 90d, 12h, 30m or 3600s.");
  }
  const moment = unit === undefined ? readMoment(text) : Date.now() + ms;
  if (moment === undefined) {
    throw new InvalidArgumentError(
      "Allowed: 2h, 90d, tomorrow, 2026-12-24 or 2026-12-24T18:00:00Z, for example.",
    );
  }
  if (moment <= Date.now()) throw new InvalidArgumentError("This time is in the past.");
  return new Date(moment);
}
