import { Command, Help, InvalidArgumentError } from "commander";
import { tablePattern } from "../access/records.ts";
import { isDatabaseOrEvery } from "../access/roles.ts";
import { readMoment, unitMs } from "../clock.ts";
import { invocation } from "../product.ts";
import { Refusal } from "../refusal.ts";
import { failureLabel } from "./output.ts";

/** Errors look like all others and end with a hint; the usage line can be typed as printed. */
export function withHouseStyle(command: Command): Command {
  return command
    .exitOverride()
    .showHelpAfterError("(add --help for what is allowed)")
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
  /** An access file other than the gateway's own, not in force anywhere yet. */
  readonly file?: string;
}

export function withCommonOptions(command: Command): Command {
  return command.option("--config <file>", "read the configuration from this file");
}

export function commandGroup(name: string, description: string): Command {
  return withHouseStyle(new Command(name)).description(description);
}

export function subcommand(group: Command, name: string): Command {
  return withCommonOptions(group.command(name));
}

export const placeArgument = [
  "<place>",
  "<database>[.<table>]; * for every database, * at the end of a name for many tables",
] as const;

/** A database (or `*`), optionally with a table or a table pattern. */
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
  throw new InvalidArgumentError("allowed: a whole number from 1");
}

const LONGEST_MS = 366 * 86_400_000;

/** Parses `90d` from now, or a future day or time. @throws InvalidArgumentError */
export function readExpiry(text: string): Date {
  const [, count = "", unit] = /^(\d{1,9})([a-z])$/.exec(text) ?? [];
  const ms = Number(count) * (unitMs.get(unit ?? "") ?? 0);
  if (unit !== undefined && !(ms > 0 && ms <= LONGEST_MS)) {
    throw new InvalidArgumentError("allowed: such as 90d, 12h, 30m or 3600s, at most 366d");
  }
  const moment = unit === undefined ? readMoment(text) : Date.now() + ms;
  if (moment === undefined) {
    const allowed = "such as 2h, 90d, tomorrow, 2026-12-24 or 2026-12-24T18:00:00Z";
    throw new InvalidArgumentError(`allowed: ${allowed}`);
  }
  if (moment <= Date.now()) throw new InvalidArgumentError("this moment has passed");
  return new Date(moment);
}
