import { once } from "node:events";
import { Command, InvalidArgumentError } from "commander";
import { moments, readMoment } from "../clock.ts";
import type { LoadedConfiguration } from "../config/load.ts";
import { auditFilesOf, readLines } from "../observe/audit-files.ts";
import {
  type AuditFilter,
  matcherOf,
  needlesOf,
  parseLine,
  type ReadLine,
} from "../observe/audit-filter.ts";
import { operationsInWords, wantedBy } from "../observe/audit-lines.ts";
import { loadFor } from "./load.ts";
import { readAccess } from "./operator.ts";
import { type CommonOptions, subcommand, withCommonOptions, withHouseStyle } from "./options.ts";
import { plainly, print, printList, warn } from "./output.ts";
import { findUnused } from "./unused-entries.ts";

/** @throws Error if the audit goes to the log */
function requireFile({ configuration }: LoadedConfiguration): string {
  const { file } = configuration.audit;
  if (file !== undefined) return file;
  throw new Error(
    'the audit goes to the log, which is not read here: set [audit] file = "audit.log" to ask it',
  );
}

/** @throws Error if there is no file yet */
async function filesSince(file: string, since: number): Promise<string[]> {
  try {
    return await auditFilesOf(file, since);
  } catch (cause) {
    throw new Error(`${file} cannot be read`, { cause });
  }
}

interface ShowOptions extends CommonOptions {
  readonly user?: string;
  readonly database?: string;
  readonly table?: string;
  readonly operation?: string;
  readonly denied?: true;
  readonly since?: number;
  readonly until?: number;
}

/** Waits until standard output has taken what was written. */
async function taken(): Promise<void> {
  if (process.stdout.writableNeedDrain) await once(process.stdout, "drain");
}

async function show(options: ShowOptions): Promise<void> {
  const file = requireFile(loadFor(options));
  const { since = 0, until = Number.POSITIVE_INFINITY } = options;
  const outcome = options.denied ? "denied" : undefined;
  const filter: AuditFilter = { ...options, outcome, since, until };
  const fits = matcherOf(filter);
  // Whoever reads has had enough, such as `head`.
  process.stdout.once("error", () => process.exit());
  let found = 0;
  const take = (bytes: Buffer) => {
    const line = parseLine(bytes);
    if (line === undefined || !fits(line)) return;
    found += 1;
    print(options.json ? bytes.toString() : lineText(line));
  };
  for (const one of await filesSince(file, since)) {
    const query = {
      needles: needlesOf(filter),
      since,
      indexed: { file, wanted: wantedBy(filter) },
      take,
    };
    await readLines(one, query, taken);
  }
  if (found === 0) process.stderr.write(`no line of ${file} and what was rotated fits\n`);
}

interface UnusedOptions extends CommonOptions {
  readonly since: number;
}

async function unused(options: UnusedOptions): Promise<void> {
  const loaded = loadFor(options);
  const file = requireFile(loaded);
  const { since } = options;
  const { entries, begins } = await findUnused(
    await readAccess(loaded),
    { file, files: await filesSince(file, since) },
    since,
  );
  if (begins === undefined || begins > since) {
    const reach = begins === undefined ? "is empty" : `begins ${new Date(begins).toISOString()}`;
    warn(`the audit ${reach}: what was used before is not known`);
  }
  const head = ["USERNAME", "ENTRY", "ROLE"];
  printList(entries, options, head, ({ username, entry, role }) => [username, entry, role]);
}

/** `gatehouse audit`: questions to the audit file. */
export function auditCommand(): Command {
  const audit = withHouseStyle(new Command("audit")).enablePositionalOptions();
  withCommonOptions(audit)
    .description("show lines of this gateway's audit file and its rotated ones, the oldest first")
    .option("--user <username>", "who asked, who changed something, or whom a change is about")
    .option("--database <database>", "only queries of this database")
    .option("--table <table>", "only queries of this table, or <database>.<table>")
    .option("--operation <operation>", "only this operation, such as Delete, login or ListTables")
    .option("--denied", "only what was denied")
    .option(
      "--since <time>",
      "how far back: 24h, 30d, yesterday, 2026-12-24, 2026-12-24T18:00:00Z",
      momentFlag,
    )
    .option("--until <time>", "up to when, in the same words", momentFlag)
    .option("--json", "the lines as they stand in the file")
    .action(show);
  subcommand(audit, "unused", "list the entries of the access file that nobody has used")
    .requiredOption("--since <time>", "since when, such as 30d", momentFlag)
    .option("--json", "as JSON")
    .action(unused);
  return audit;
}

/** The operations, or else the path. */
function whatWasAsked({ operations, operationCount, method, path }: ReadLine): string {
  const known = operationsInWords(operations, operationCount);
  return known ?? `${method ?? ""} ${path === undefined ? "-" : plainly(path)}`.trim();
}

function changesOf({ changes }: ReadLine): string[] {
  return changes.map((one) => {
    const { change, ...about } = one;
    const words = Object.values(about)
      .flat()
      .filter((word) => word !== undefined);
    return [change, ...words.map((word) => plainly(String(word)))].join(" ");
  });
}

function rowsOf({ affected, rows }: ReadLine): string[] {
  return [
    ...(affected === undefined ? [] : [`affected ${affected}`]),
    ...(rows === undefined ? [] : [`rows ${rows}`]),
  ];
}

function requestText(line: ReadLine): string[] {
  const { user = "-", via, client, decision = "-", reason, status, operations } = line;
  const entries = new Set(operations.flatMap(({ entry }) => entry ?? []));
  return [
    plainly(user),
    ...(via === "mcp" ? ["mcp"] : []),
    ...(client === undefined ? [] : [plainly(client)]),
    whatWasAsked(line),
    reason === undefined ? decision : `${decision} ${reason}`,
    String(status ?? "-"),
    ...rowsOf(line),
    ...(entries.size === 0 ? [] : [`by ${[...entries].join(",")}`]),
    ...changesOf(line),
  ];
}

function eventText(line: ReadLine): string[] {
  const { msg, user, client, author, reason, outcome, approval, file } = line;
  const by = author === undefined ? [] : [`${plainly(author.name)} (${author.kind})`];
  const place = line.line === undefined ? file : `${file}:${line.line}`;
  const asked = operationsInWords(line.operations, line.operationCount);
  const about = [approval, user, client, asked, outcome, place, reason]
    .filter((word) => word !== undefined)
    .map((word) => (word === asked ? word : plainly(word)));
  const changes = changesOf(line);
  return [...by, ...(changes.length > 0 ? changes : [msg, ...about])];
}

/** A line of the audit for people: its parts are two spaces apart. */
function lineText(line: ReadLine): string {
  const parts = line.msg === "request" ? requestText(line) : eventText(line);
  return [line.time, ...parts].join("  ");
}

/** A flag that says a moment of the past, as epoch milliseconds. @throws InvalidArgumentError */
function momentFlag(text: string): number {
  const moment = readMoment(text);
  if (moment === undefined) throw new InvalidArgumentError(`allowed: ${moments}`);
  return moment;
}
