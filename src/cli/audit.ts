import { once } from "node:events";
import { type Command, InvalidArgumentError } from "commander";
import * as z from "zod";
import { mayBeMember } from "../core/access/administration.ts";
import { entriesIn } from "../core/access/entries.ts";
import type { Grant } from "../core/access/grant.ts";
import { displayName, groupOf, holderText, userOf, writtenHolder } from "../core/access/holder.ts";
import type { Snapshot } from "../core/access/snapshot.ts";
import { moments, readMoment } from "../core/base/clock.ts";
import type { LoadedConfiguration } from "../core/config/load.ts";
import { entryNames } from "../core/http/change-records.ts";
import {
  type AuditFilter,
  changeInWords,
  matcherOf,
  NAMED_OPERATIONS,
  needlesOf,
  operationsInWords,
  parseLine,
  type ReadLine,
} from "../core/observe/audit-filter.ts";
import { auditFilesOf, linesIn, piecesSince } from "../core/observe/audit-search.ts";
import { loadFor } from "./load.ts";
import { readAccess } from "./operator.ts";
import { type CommonOptions, defineCommand } from "./options.ts";
import { plainly, print, printList, warn } from "./output.ts";

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
  const from = new Date(since).toISOString();

  // Regular expressions are safe here: strings are escaped, so none can look like a member.
  function take(line: string): void {
    const time = /"time":"([^"]+)"/.exec(line)?.[1];
    if (time !== undefined && time < from) {
      begins ??= since;
      return;
    }
    begins ??= Date.parse(time ?? "") || undefined;
    const user = textOf(/"user":("[^"]+")/.exec(line)?.[1]);
    if (user === "") return;
    const isSignIn = line.includes('"msg":"console_login"') && line.includes('"outcome":"allowed"');
    const isAllowed = line.includes('"decision":"allow"');
    if (isSignIn || (isAllowed && line.includes('"path":"/api/'))) administrators.add(user);
    if (!isAllowed) return;
    for (const [, written] of line.matchAll(/"entry":("(?:[^"\\]|\\.)+")/g)) {
      const entries = textOf(written);
      if (entries.includes(" (group ")) usedByGroups.add(entries);
      for (const entry of entries.split(",")) used.add(`${user} ${entry.trim()}`);
    }
    const [, count = "0"] = /"operationCount":(\d+)/.exec(line) ?? [];
    if (Number(count) > NAMED_OPERATIONS) uncertain.add(user);
  }

  for (const file of files) {
    for await (const piece of piecesSince(file, since)) {
      for (const { bytes } of linesIn(piece, [])) take(bytes.toString());
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

function textOf(jsonString = '""'): string {
  return z.string().parse(JSON.parse(jsonString));
}

/** @throws Error if the audit is written to the log */
function requireFile({ configuration }: LoadedConfiguration): string {
  const { file } = configuration.audit;
  if (file !== undefined) return file;
  throw new Error(
    'the audit is written to the log, which this command cannot read; set [audit] file = "audit.log"',
  );
}

async function filesSince(file: string, since: number): Promise<string[]> {
  return auditFilesOf(file, since).catch((cause: unknown) => {
    throw new Error(`${file} cannot be read`, { cause });
  });
}

interface ShowOptions extends CommonOptions {
  readonly operation?: string;
  readonly denied?: true;
  readonly since?: number;
  readonly until?: number;
}

async function show(options: ShowOptions): Promise<void> {
  const file = requireFile(loadFor(options));
  const { since = 0, until = Number.POSITIVE_INFINITY } = options;
  const outcome = options.denied ? "denied" : undefined;
  const filter: AuditFilter = { ...options, outcome, since, until };
  const matches = matcherOf(filter);
  // A reader such as `head` closes the pipe early.
  process.stdout.once("error", () => process.exit());
  let found = 0;
  for (const one of await filesSince(file, since)) {
    for await (const piece of piecesSince(one, since)) {
      for (const { bytes } of linesIn(piece, needlesOf(filter))) {
        const line = parseLine(bytes);
        if (line === undefined || !matches(line)) continue;
        found += 1;
        print(options.json ? bytes.toString() : lineText(line));
      }
      if (process.stdout.writableNeedDrain) await once(process.stdout, "drain");
    }
  }
  if (found === 0) process.stderr.write(`no matching lines in ${file} and its rotated files\n`);
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

function changesOf({ changes }: ReadLine): string[] {
  return changes.map((one) => {
    const [change, ...words] = changeInWords(one);
    return [change, ...words.map(plainly)].join(" ");
  });
}

function requestText(line: ReadLine): string[] {
  const { user = "-", via, client, decision = "-", reason, status, operations } = line;
  const { method = "", path, affected, rows } = line;
  const entries = new Set(operations.flatMap(({ entry }) => entry ?? []));
  const asked = operationsInWords(operations, line.operationCount);
  return [
    plainly(user),
    ...(via === "mcp" ? ["mcp"] : []),
    ...(client === undefined ? [] : [plainly(client)]),
    asked ?? `${method} ${path === undefined ? "-" : plainly(path)}`.trim(),
    reason === undefined ? decision : `${decision} ${reason}`,
    String(status ?? "-"),
    ...(affected === undefined ? [] : [`affected ${affected}`]),
    ...(rows === undefined ? [] : [`rows ${rows}`]),
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
function readTime(text: string): number {
  const moment = readMoment(text);
  if (moment === undefined) throw new InvalidArgumentError(`Allowed: ${moments}, for example.`);
  return moment;
}

const help = `
audit           show lines of the audit file and its rotated files
  --user <username>  only lines of requests by this user, and of changes by or to this user
  --database <database>  only queries of this database
  --table <table>  only queries of this table, or <database>.<table>
  --operation <operation>  only this operation, such as Delete, login or ListTables
  --denied      only denied requests
  --since <time>  start: 24h, 30d, yesterday, 2026-12-24, 2026-12-24T18:00:00Z
  --until <time>  end, in the same formats
  --json        print the lines unchanged
`;
const unusedHelp = `
unused --json   list entries of the access file that allowed no request
  --since <time>  start of the period, such as 30d (required)
`;

export function auditCommand(): Command {
  const time = { parse: readTime };
  return defineCommand(help, { audit: show }, { since: time, until: time })
    .enablePositionalOptions()
    .addCommand(defineCommand(unusedHelp, { unused }, { since: time }));
}
