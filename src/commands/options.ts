import { Command, Help, InvalidArgumentError } from "commander";
import { invocation } from "../product.ts";
import { failureLabel } from "./output.ts";

const plainHelp = new Help();

/** The usage line, beginning with how the program is called here. */
function usageOf(command: Command): string {
  return plainHelp.commandUsage(command).replace(/^gatehouse\b/, invocation);
}

/**
 * Gives a command, and those that are made under it later, one way to speak: errors begin as all
 * others do and end with a hint, and the usage line can be typed as it stands.
 */
export function withHouseStyle(command: Command): Command {
  return command
    .showHelpAfterError("(add --help for what is allowed)")
    .configureHelp({ commandUsage: usageOf })
    .configureOutput({
      outputError: (text, write) => write(text.replace(/^error:/, failureLabel())),
    });
}

/** Options that every command takes. */
export interface CommonOptions {
  readonly config?: string;
  /** Of those that can print for scripts. */
  readonly json?: true;
}

/** Adds the options that every command takes. */
export function withCommonOptions(command: Command): Command {
  return command.option("--config <file>", "read the configuration from this file");
}

/** A command that stands for several others, with what they have in common in a sentence. */
export function commandGroup(name: string, description: string): Command {
  return withHouseStyle(new Command(name)).description(description);
}

/** One of them. */
export function subcommand(group: Command, name: string, description: string): Command {
  return withCommonOptions(group.command(name)).description(description);
}

const secondsIn = new Map([
  ["s", 1],
  ["m", 60],
  ["h", 3600],
  ["d", 86_400],
]);

/** Reads `90d`, `12h`, `30m` or `3600s` as seconds. @throws InvalidArgumentError past `most` */
export function readDuration(text: string, most: number = 366 * 86_400): number {
  const [, count = "", unit = ""] = /^(\d{1,9})([smhd])$/.exec(text) ?? [];
  const seconds = Number(count) * (secondsIn.get(unit) ?? 0);
  if (seconds >= 1 && seconds <= most) return seconds;
  throw new InvalidArgumentError("allowed: such as 90d, 12h, 30m or 3600s, at most 366d");
}
