import { once } from "node:events";
import { type Command, InvalidArgumentError } from "commander";
import { mayBeMember } from "../core/access/administration.ts";
import { entriesIn } from "../core/access/entries.ts";
import {
  displayName,
  type Grant,
  groupOf,
  holderText,
  userOf,
  writtenHolder,
} from "../core/access/grant.ts";
import { isExternalGroup } from "../core/access/roles.ts";
import type { Snapshot } from "../core/access/snapshot.ts";
import { errorMessage } from "../core/base/client-error.ts";
import { moments, readMoment, writtenTime } from "../core/base/clock.ts";
import type { LoadedConfiguration } from "../core/config/load.ts";
import { entryNames } from "../core/http/change-records.ts";
import { csvHead, formatCsv } from "../core/observe/audit-csv.ts";
import {
  type AuditFilter,
  changeTexts,
  createMatcher,
  eventInWords,
  NAMED_OPERATIONS,
  operationsInWords,
  parseLine,
  type ReadLine,
  requiredTexts,
} from "../core/observe/audit-filter.ts";
import { findAuditFiles, linesIn, type Piece, piecesSince } from "../core/observe/audit-search.ts";
import { readAccess } from "./operator.ts";
import { type CommonOptions, defineCommand, loadFor, readCount } from "./options.ts";
import { plainly, printList, reportFailure, UsageError, warn } from "./output.ts";

const administering = new Set(["Owner", "DbAdmin"]);

/**
 * Finds entries that have allowed nothing. An entry that narrows (`None`) takes effect by denying
 * and is not listed. Where the audit is inconclusive, an entry counts as used.
 *
 * @returns `begins`, the time of the first line. All times are epoch milliseconds.
 */
async function findUnused(snapshot: Snapshot, files: readonly string[], since: number) {
  const used = new Set<string>();
  /** The texts that name an entry of a group, which several users may have used. */
  const usedByGroups = new Set<string>();
  const administrators = new Set<string>();
  /** Users for whom the audit does not name every used entry. */
  const uncertain = new Set<string>();
  let begins: number | undefined;

  function take({ time, user, msg, outcome, decision, path, ...line }: ReadLine): void {
    const moment = Date.parse(time);
    begins ??= Math.max(moment, since) || undefined;
    if (moment < since || user === undefined) return;
    const isSignIn = msg === "console_login" && outcome === "allowed";
    const isAllowed = decision === "allow";
    if (isSignIn || (isAllowed && path?.startsWith("/api/"))) administrators.add(user);
    if (!isAllowed) return;
    for (const { entry: entries = "" } of line.operations) {
      if (entries.includes(" (group ")) usedByGroups.add(entries);
      for (const entry of entries.split(",")) used.add(`${user} ${entry.trim()}`);
    }
    if (line.operationCount > NAMED_OPERATIONS) uncertain.add(user);
  }

  for await (const piece of piecesOf(files, since)) {
    for (const { bytes } of linesIn(piece, [])) {
      const line = parseLine(bytes.toString());
      if (line !== undefined) take(line);
    }
  }
  const isNamed = (name: string, { holder }: Grant): boolean => {
    const user = userOf(holder);
    if (user !== undefined) return used.has(`${user} ${name}`);
    // A group's name may contain commas, which also separate entries.
    return usedByGroups.values().some((text) => `, ${text},`.includes(`, ${name},`));
  };
  const entries = [...snapshot.grants.values()]
    .flatMap((held) => [...entriesIn(held)])
    .flatMap((grant) => {
      const { holder, role } = grant;
      const group = groupOf(holder);
      const isMeant = (user: string) =>
        group === undefined ? user === userOf(holder) : mayBeMember(snapshot, group, user);
      const isUsed =
        uncertain.values().some(isMeant) ||
        (administering.has(role) && administrators.values().some(isMeant)) ||
        entryNames(grant).some((name) => isNamed(displayName(name, grant), grant));
      const entry = entryNames(grant).join(",");
      return role === "None" || isUsed ? [] : [{ holder, entry, role }];
    });
  return { entries, begins };
}

/** @throws Error if the audit is written to the log */
function requireFile({ configuration }: LoadedConfiguration): string {
  const { file } = configuration.audit;
  if (file !== undefined) return file;
  throw new Error(
    'the audit is written to the log, which this command cannot read; set [audit] file = "audit.log"',
  );
}

/** Reports a file that is damaged, and continues with the next one. */
async function* piecesOf(files: readonly string[], since: number): AsyncGenerator<Piece> {
  for (const file of files) {
    try {
      yield* piecesSince(file, since);
    } catch (error) {
      reportFailure(new Error(`${file} cannot be read to its end: ${errorMessage(error)}`));
    }
  }
}

async function filesSince(file: string, since: number): Promise<string[]> {
  return findAuditFiles(file, since).catch((cause: unknown) => {
    throw new Error(`${file} cannot be read`, { cause });
  });
}

interface ShowOptions extends CommonOptions {
  readonly operation?: string;
  readonly denied?: true;
  readonly failed?: true;
  readonly group?: string;
  readonly requestId?: string;
  readonly since?: number;
  readonly until?: number;
  /** As `since` and `until`, but `to` is not included. */
  readonly from?: number;
  readonly to?: number;
  readonly limit?: number;
  readonly csv?: true;
}

async function groupFilter(loaded: LoadedConfiguration, name: string) {
  const { groups } = await readAccess(loaded);
  const members = groups.get(name)?.members;
  if (members === undefined && !isExternalGroup(name)) {
    warn(`there is no local group ${name}; only lines that it decided are found`);
  }
  return { name, members: members ?? [] };
}

async function show(options: ShowOptions): Promise<void> {
  const loaded = loadFor(options);
  const file = requireFile(loaded);
  const { from = 0, to = Number.POSITIVE_INFINITY, limit = Number.POSITIVE_INFINITY } = options;
  const { since = from, until = to - 1 } = options;
  if (since > until) {
    const [start, end] = [since, options.until ?? to].map(writtenTime);
    throw new UsageError(`no line can match: the end, ${end}, is not after the start, ${start}`);
  }
  const outcome = options.denied ? "denied" : options.failed ? "failed" : undefined;
  const group = options.group === undefined ? undefined : await groupFilter(loaded, options.group);
  const filter: AuditFilter = { ...options, outcome, group, since, until };
  const match = createMatcher(filter);
  /** The newest lines, if there is a limit. */
  let newest: string[] = [];
  if (options.csv) process.stdout.write(csvHead);
  // A reader such as `head` may close the pipe early.
  process.stdout.once("error", () => process.exit());
  let found = 0;
  for await (const piece of piecesOf(await filesSince(file, since), since)) {
    for (const { bytes } of linesIn(piece, requiredTexts(filter))) {
      const line = match(bytes);
      if (line === undefined) continue;
      found += 1;
      const text = textFor(line, bytes, options);
      if (limit === Number.POSITIVE_INFINITY) process.stdout.write(text);
      else newest.push(text);
      if (newest.length >= 2 * limit) newest = newest.slice(-limit);
    }
    if (process.stdout.writableNeedDrain) await once(process.stdout, "drain");
  }
  for (const text of newest.slice(-limit)) process.stdout.write(text);
  if (found === 0) process.stderr.write(`no matching lines in ${file} and its rotated files\n`);
}

function textFor(line: ReadLine, bytes: Buffer, { json, csv }: ShowOptions): string {
  if (csv) return formatCsv(line);
  return `${json ? bytes.toString() : lineText(line)}\n`;
}

async function unused(options: CommonOptions & { readonly since: number }): Promise<void> {
  const loaded = loadFor(options);
  const { since } = options;
  const files = await filesSince(requireFile(loaded), since);
  const { entries, begins } = await findUnused(await readAccess(loaded), files, since);
  if (begins === undefined || begins > since) {
    const start = begins === undefined ? "is empty" : `begins ${new Date(begins).toISOString()}`;
    warn(`the audit ${start}; earlier use is unknown`);
  }
  const head = ["USERNAME", "ENTRY", "ROLE"];
  printList(
    entries,
    options,
    head,
    ({ holder, entry, role }) => [holderText(holder), entry, role],
    ({ holder, entry, role }) => ({ ...writtenHolder(holder), entry, role }),
  );
}

function requestText(line: ReadLine): string[] {
  const { user = "-", via, client, decision = "-", reason, status, operations } = line;
  const { method = "", path, affected, rows, format, toolStatus } = line;
  const entries = new Set(operations.flatMap(({ entry }) => entry ?? []));
  const asked = operationsInWords(operations, line.operationCount);
  return [
    plainly(user),
    ...(via === "mcp" ? ["mcp"] : []),
    ...(client === undefined ? [] : [plainly(client)]),
    asked ?? `${method} ${path === undefined ? "-" : plainly(path)}`.trim(),
    reason === undefined ? decision : `${decision} ${reason}`,
    String(toolStatus ?? status ?? "-"),
    ...(affected === undefined ? [] : [`affected ${affected}`]),
    ...(rows === undefined ? [] : [`rows ${rows}`]),
    ...(format === undefined ? [] : [`as ${format}`]),
    ...(entries.size === 0 ? [] : [`by ${[...entries].join(",")}`]),
    ...changeTexts(line, plainly),
  ];
}

function lineText(line: ReadLine): string {
  const parts = line.msg === "request" ? requestText(line) : eventInWords(line, plainly);
  return [line.time, ...parts].join("  ");
}

/** Parses a moment into epoch milliseconds. @throws InvalidArgumentError */
function readTime(text: string): number {
  const moment = readMoment(text);
  if (moment === undefined) throw new InvalidArgumentError(`Allowed: ${moments}, for example.`);
  return moment;
}

function readStart(text: string): number {
  const moment = readTime(text);
  if (moment > Date.now()) throw new InvalidArgumentError("This time is in the future.");
  return moment;
}

const help = `
audit           show lines of the audit file and its rotated files
  --user <username>  only lines of requests by this user, and of changes by or to this user
  --database <database>  only queries of this database
  --table <table>  only queries of this table, or <database>.<table>
  --operation <operation>  only this operation, such as Delete, login or ListTables
  --group <group>  only lines of the members of this local group, and lines that an entry of the group decided
  --request-id <id>  only lines of the request with this X-Request-Id
  --denied      only denied requests (403)
  --failed      only requests that failed: 4xx other than 401 and 403, and 5xx
  --since <time>  start: 24h, 30d, yesterday, 2026-12-24, 2026-12-24T18:00:00Z
  --until <time>  end, in the same formats
  --from <time>  the same as --since
  --to <time>   end, which is not included
  --limit <n>   only the newest lines
  --json        print the lines unchanged
  --csv         print CSV for spreadsheets
`;
const unusedHelp = `
unused --json   list entries of the access file that allowed no request
  --since <time>  start of the period, such as 30d (required)
`;

export function auditCommand(): Command {
  const start = { parse: readStart };
  const end = { parse: readTime };
  const refinements = {
    since: start,
    until: end,
    limit: { parse: readCount },
    failed: { conflicts: "denied" },
    from: { ...start, conflicts: "since" },
    to: { ...end, conflicts: "until" },
    csv: { conflicts: "json" },
  };
  return defineCommand(help, { audit: show }, refinements)
    .enablePositionalOptions()
    .addCommand(defineCommand(unusedHelp, { unused }, { since: start }));
}
