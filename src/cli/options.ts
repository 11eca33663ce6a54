import { Argument, Command, Help, InvalidArgumentError, Option } from "commander";
import { isDatabaseOrEvery, isExternalGroup, splitNames } from "../core/access/roles.ts";
import { readMoment, unitMs } from "../core/base/clock.ts";
import { invocation } from "../core/base/product.ts";
import { Refusal } from "../core/base/refusal.ts";
import { type LoadedConfiguration, loadConfiguration } from "../core/config/load.ts";
import type { Configuration } from "../core/config/schema.ts";
import { type Place, splitPlace, tablePattern } from "../core/query/names.ts";
import { failureLabel, harmless, UsageError, warn } from "./output.ts";

/** Formats errors as those of the gateway, and the usage line so that it can be typed as shown. */
export function withHouseStyle(command: Command): Command {
  return command
    .exitOverride()
    .showHelpAfterError("(add --help to see what is allowed)")
    .configureHelp({
      minWidthToWrap: 24,
      commandUsage: (command) =>
        new Help().commandUsage(command).replace(/^gatehouse\b/, invocation),
    })
    .configureOutput({
      outputError: (text, write) =>
        write(
          harmless(text)
            .replace(/^error:(?: command-argument)?/, failureLabel())
            // The nearest name means the opposite.
            .replace(/(?<='--password'\n.*)--no-password/, "--password-stdin"),
        ),
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

/** Arguments and options that mean the same in every command. */
const common: ReadonlyMap<string, string> = new Map([
  ["<username>", "the user"],
  [
    "<place>",
    "<database>[.<table>], with quotes around a database that contains a dot; * means every database, and a table may end in * to match a prefix",
  ],
  ["<operation>", "an operation such as Select, or a right such as SELECT"],
  ["--via <via>", "the entry point, which boundaries may limit"],
  ["--client <client_id>", "the OAuth client that sends the query"],
  ["--file <file>", "use this access file instead of the gateway's"],
  ["--json", "print JSON"],
  ["--force", "allow this even if no administrator or Owner of a database is left"],
  ["--password-stdin", "read the password from standard input"],
]);

/** How the value of an argument or option is read. */
interface Refinement {
  readonly choices?: readonly string[];
  parse?(text: string): unknown;
  /** Adds a value to the earlier ones of an option that may be repeated. */
  add?(text: string, earlier?: unknown): unknown;
  readonly fallback?: readonly [value: unknown, shown?: string];
  readonly conflicts?: string;
}

function refine(parameter: Argument | Option, refinement: Refinement = {}): void {
  const { choices, parse, add = parse, fallback, conflicts } = refinement;
  if (choices !== undefined) parameter.choices(choices);
  if (add !== undefined) parameter.argParser((text, earlier: unknown) => add(text, earlier));
  if (fallback !== undefined) parameter.default(...fallback);
  if (conflicts !== undefined && parameter instanceof Option) parameter.conflicts(conflicts);
}

/** The last of these counts, so that a script can extend a command line that has one. */
const replaceable = new Set(["host", "port", "url"]);

/** Of `--email` and `--no-email`, and of an option given twice, commander would take the last. */
function refuseSecond(command: Command, names: readonly string[]): void {
  let given: string | undefined;
  for (const name of names) {
    command.on(`option:${name}`, () => {
      if (given === name) command.error(`error: option '--${name}' is given twice`);
      if (given) command.error(`error: option '--${given}' cannot be used with option '--${name}'`);
      given = name;
    });
  }
}

/**
 * Builds commands from a help text. A line with a name and a description begins a command. Indented
 * lines describe its arguments and options; those in `common` follow the name without a description.
 *
 * @param refinements by the names that commander gives arguments and options
 */
export function defineCommands(
  help: string,
  runs: Readonly<Record<string, Parameters<Command["action"]>[0]>>,
  refinements: Readonly<Record<string, Refinement>> = {},
): Command[] {
  const sections = help.trim().split(/\n(?=\S)/);
  return sections.map((section) => {
    const [[head = "", description = ""] = [], ...described] = section
      .split("\n")
      .map((line) => line.trim().split(/ {2,}/));
    const [name = "", ...shared] = head.match(/--\S+ <\S+>|\S+/g) ?? [];
    const command = withHouseStyle(new Command(name))
      .description(description)
      .option("--config <file>", "read the configuration from this file");
    for (const [flags = "", text = ""] of [
      ...shared.map((one) => [one, common.get(one)]),
      ...described,
    ]) {
      if (flags.startsWith("-")) {
        const option = new Option(flags, text).makeOptionMandatory(text.endsWith("(required)"));
        const refinement = refinements[option.attributeName()];
        refine(option, refinement);
        command.addOption(option);
        const own = option.name();
        const isSingle = option.required && refinement?.add === undefined && !replaceable.has(own);
        if (option.negate) refuseSecond(command, [own.replace(/^no-/, ""), own]);
        else if (isSingle) refuseSecond(command, [own]);
      } else {
        const argument = new Argument(flags, text);
        refine(argument, refinements[argument.name()]);
        command.addArgument(argument);
      }
    }
    const run = runs[name];
    if (run === undefined) throw new Error(`the command ${name} has no function`);
    return command.action(run);
  });
}

/** For a help text of one command. */
export function defineCommand(...definition: Parameters<typeof defineCommands>): Command {
  const [command = new Command()] = defineCommands(...definition);
  return command;
}

export function commandGroup(name: string, description: string, commands: readonly Command[]) {
  const group = withHouseStyle(new Command(name)).description(description);
  for (const command of commands) group.addCommand(command);
  return group;
}

export function searchOptions({ config, host, port }: CommonOptions) {
  return { config, host, port, env: process.env, cwd: process.cwd() };
}

export function loadFor(options: CommonOptions): LoadedConfiguration {
  const loaded = loadConfiguration(searchOptions(options));
  for (const warning of loaded.warnings) warn(warning);
  return loaded;
}

const ends: (() => Promise<void>)[] = [];

/** Registers what to close when the command ends, however it ends. */
export function atEnd(close: () => Promise<void>): void {
  ends.push(close);
}

export async function endCommand(): Promise<void> {
  for (const close of ends.splice(0).reverse()) await close();
}

/**
 * Parses `main`, `main.tickets`, `*.customer_*` or `'acme.shop'.tickets`. A shell removes quotes, so
 * three names without them are refused where a database may have two of them.
 */
export function readPlace(text: string, { upstream, routes }: Configuration): Place {
  const hasTenants =
    upstream.preset === "chroma" || routes.some(({ database }) => database?.includes("."));
  const [, first, second, rest] = /^([^'".]*)\.([^.]*)\.(.*)$/s.exec(text) ?? [];
  if (hasTenants && rest !== undefined) {
    throw new UsageError(
      `${text} has two readings: write '"${first}.${second}".${rest}', or '"${first}".${second}.${rest}' for a table of ${first}`,
    );
  }
  const place = splitPlace(text);
  if (!isDatabaseOrEvery(place.database)) {
    const { message } = new Refusal("invalid_database");
    throw new Error(`${message}; write main, main.users or '"acme.shop".users'`);
  }
  if (place.table !== undefined && !tablePattern.test(place.table)) {
    throw new Refusal("invalid_table");
  }
  return place;
}

/** The names of an option, which may be repeated. */
export function readNames(text: string, earlier?: unknown): string[] {
  const names = text.trim() === "" ? [] : splitNames(text);
  return Array.isArray(earlier) ? [...earlier, ...names] : names;
}

/** Groups that only a token tells. */
export function readTokenGroups(text: string, earlier?: unknown): string[] {
  const groups = readNames(text, earlier);
  if (groups.every(isExternalGroup)) return groups;
  throw new InvalidArgumentError(
    'Allowed: groups of an issuer, such as staff:a,staff:b or "staff:Sales, EU"; local groups are known.',
  );
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
    throw new InvalidArgumentError("Allowed: 1s to 366d, written as 90d, 12h, 30m or 3600s.");
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
