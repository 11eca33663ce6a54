import { once } from "node:events";
import { Command, InvalidArgumentError } from "commander";
import { entriesIn } from "../access/entries.ts";
import type { Grant } from "../access/grant.ts";
import type { Snapshot } from "../access/snapshot.ts";
import { moments, readMoment } from "../clock.ts";
import type { LoadedConfiguration } from "../config/load.ts";
import { entryNames } from "../gateway/change-records.ts";
import {
  type AuditFilter,
  linesIn,
  matcherOf,
  NAMED_OPERATIONS,
  needlesOf,
  operationsInWords,
  parseLine,
  type ReadLine,
} from "../observe/audit-filter.ts";
import { auditFilesOf, piecesSince } from "../observe/audit-search.ts";
import { loadFor } from "./load.ts";
import { readAccess } from "./operator.ts";
import { type CommonOptions, subcommand, withCommonOptions, withHouseStyle } from "./options.ts";
import { plainly, print, printList, warn } from "./output.ts";

interface UnusedEntry {
  readonly username: string;
  /** As the audit names it: `main`, `*`, `main.tickets`; several tables separated by commas. */
  readonly entry: string;
  readonly role: string;
}

/** How far back the audit goes, and which entries it does not show. */
interface Usage {
  readonly entries: readonly UnusedEntry[];
  /** Epoch milliseconds of the first line; undefined if there is none. */
  readonly begins: number | undefined;
}

const administering = new Set(["Owner", "DbAdmin"]);

/** Collects the entries that audit lines name as used. */
class UsedEntries {
  readonly #used = new Set<string>();
  readonly #administrators = new Set<string>();
  /** Users for whom the audit does not name every used entry. */
  readonly #uncertain = new Set<string>();
  begins: number | undefined;

  /** Reads a line as text. Strings in it are escaped, so none of them can look like a member. */
  take(line: string): void {
    this.begins ??= Date.parse(/"time":"([^"]+)"/.exec(line)?.[1] ?? "") || undefined;
    const user = /"user":"([^"]+)"/.exec(line)?.[1];
    if (user === undefined || !line.includes('"decision":"allow"')) return;
    for (const [, entries = ""] of line.matchAll(/"entry":"([^"]+)"/g)) {
      for (const entry of entries.split(",")) this.#used.add(`${user} ${entry.trim()}`);
    }
    if (line.includes('"path":"/api/')) this.#administrators.add(user);
    const [, count = "0"] = /"operationCount":(\d+)/.exec(line) ?? [];
    if (Number(count) > NAMED_OPERATIONS) this.#uncertain.add(user);
  }

  has({ username, role }: Grant, names: readonly string[]): boolean {
    if (this.#uncertain.has(username)) return true;
    if (this.#administrators.has(username) && administering.has(role)) return true;
    return names.some((name) => this.#used.has(`${username} ${name}`));
  }
}

/**
 * Finds entries that have allowed nothing. An entry that narrows (`None`) takes effect by denying
 * and is not listed. Where the audit is inconclusive, an entry counts as used.
 *
 * @param since epoch milliseconds
 */
async function findUnused(
  snapshot: Snapshot,
  files: readonly string[],
  since: number,
): Promise<Usage> {
  const used = new UsedEntries();
  const from = new Date(since).toISOString();
  for (const file of files) {
    for await (const piece of piecesSince(file, since)) {
      for (const { bytes } of linesIn(piece, [])) {
        const line = bytes.toString("latin1");
        if (!isOlder(line, from)) used.take(line);
        else used.begins ??= since;
      }
    }
  }
  const entries = [...snapshot.grants.values()]
    .flatMap((held) => Array.from(entriesIn(held)))
    .flatMap((grant): UnusedEntry[] => {
      const { username, role } = grant;
      const names = entryNames(grant);
      if (role === "None" || used.has(grant, names)) return [];
      return [{ username, entry: names.join(","), role }];
    });
  return { entries, begins: used.begins };
}

/** All times in the audit have the same format, so comparing them as text is safe. */
function isOlder(line: string, from: string): boolean {
  const at = line.indexOf('"time":"');
  return at !== -1 && line.slice(at + 8, at + 8 + from.length) < from;
}

/** @throws Error if the audit is written to the log */
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

/** Waits until standard output has accepted what was written. */
async function taken(): Promise<void> {
  if (process.stdout.writableNeedDrain) await once(process.stdout, "drain");
}

async function show(options: ShowOptions): Promise<void> {
  const file = requireFile(loadFor(options));
  const { since = 0, until = Number.POSITIVE_INFINITY } = options;
  const outcome = options.denied ? "denied" : undefined;
  const filter: AuditFilter = { ...options, outcome, since, until };
  const fits = matcherOf(filter);
  // The reader has closed the pipe, for example `head`.
  process.stdout.once("error", () => process.exit());
  let found = 0;
  for (const one of await filesSince(file, since)) {
    for await (const piece of piecesSince(one, since)) {
      for (const { bytes } of linesIn(piece, needlesOf(filter))) {
        const line = parseLine(bytes);
        if (line === undefined || !fits(line)) continue;
        found += 1;
        print(options.json ? bytes.toString() : lineText(line));
      }
      await taken();
    }
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
    await filesSince(file, since),
    since,
  );
  if (begins === undefined || begins > since) {
    const reach = begins === undefined ? "is empty" : `begins ${new Date(begins).toISOString()}`;
    warn(`the audit ${reach}: what was used before is not known`);
  }
  const head = ["USERNAME", "ENTRY", "ROLE"];
  printList(entries, options, head, ({ username, entry, role }) => [username, entry, role]);
}

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

function lineText(line: ReadLine): string {
  const parts = line.msg === "request" ? requestText(line) : eventText(line);
  return [line.time, ...parts].join("  ");
}

/** Parses a moment in the past into epoch milliseconds. @throws InvalidArgumentError */
function momentFlag(text: string): number {
  const moment = readMoment(text);
  if (moment === undefined) throw new InvalidArgumentError(`allowed: ${moments}`);
  return moment;
}
