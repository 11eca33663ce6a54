/** `gatehouse access grant | revoke | list`: the entries of the access file. */
import { InvalidArgumentError } from "commander";
import type { Plan } from "../access/access-rules.ts";
import { planGrant, planRevoke } from "../access/administration.ts";
import { entriesIn, prefixOf } from "../access/entries.ts";
import { limitsInWords, readCondition, readEntry, viewEntry } from "../access/entry-view.ts";
import type { Grant } from "../access/grant.ts";
import { entryOddities } from "../access/oddities.ts";
import { entryKeys, entryRoles, tablePattern } from "../access/records.ts";
import { type EntryRole, isDatabaseOrEvery } from "../access/roles.ts";
import { grantsOf } from "../access/snapshot.ts";
import { Refusal } from "../refusal.ts";
import { didYouMean } from "../suggestion.ts";
import { missingNames } from "./database-schema.ts";
import { loadFor } from "./load.ts";
import { changeAccess, entriesInWords, readAccess } from "./operator.ts";
import type { CommonOptions } from "./options.ts";
import { print, printJson, printList, UsageError, warn } from "./output.ts";

/** A database (or `*`), optionally with a table or a table pattern. */
export interface Place {
  readonly database: string;
  readonly table?: string;
}

/**
 * Parses `main`, `main.tickets` or `*.customer_*`. @throws Refusal `invalid_database`,
 * `invalid_table`
 */
export function readPlace(text: string): Place {
  const dot = text.indexOf(".");
  const database = dot === -1 ? text : text.slice(0, dot);
  if (!isDatabaseOrEvery(database)) throw new Refusal("invalid_database");
  if (dot === -1) return { database };
  const table = text.slice(dot + 1);
  if (!tablePattern.test(table)) throw new Refusal("invalid_table");
  return { database, table };
}

/** @throws InvalidArgumentError that lists the roles and suggests the closest one */
export function readRole(text: string): EntryRole {
  const role = entryRoles.find((known) => known === text);
  if (role !== undefined) return role;
  const message = `Allowed: ${entryRoles.join(", ")}${didYouMean(text, entryRoles)}.`;
  throw new InvalidArgumentError(message);
}

export function readNames(text: string): string[] {
  return text.trim() === "" ? [] : text.split(",").map((name) => name.trim());
}

export function readRights(text: string): string[] {
  return readNames(text.toUpperCase());
}

export function readFilter(text: string, earlier: readonly object[] = []): readonly object[] {
  const condition = readCondition(text);
  if (condition !== undefined) return [...earlier, condition];
  throw new InvalidArgumentError(
    "allowed: one condition, such as 'tenant = @tenant', 'size < 5' or 'region IN (eu, us)'; a further one takes a --row-filter of its own, and text that is not one word stands in quotes",
  );
}

export function readCount(text: string): number {
  if (/^[1-9]\d{0,14}$/.test(text)) return Number(text);
  throw new InvalidArgumentError("allowed: a whole number from 1");
}

type EntryField = (typeof entryKeys)[keyof typeof entryKeys]["field"];

interface GrantOptions extends CommonOptions, Partial<Record<EntryField, unknown>> {
  readonly beside?: true;
  readonly force?: true;
}

function keysOf(role: string, options: GrantOptions): Record<string, unknown> {
  const keys = Object.entries(entryKeys).map(([key, { field }]) => [key, options[field]]);
  return { role, ...Object.fromEntries(keys.filter(([, value]) => value !== undefined)) };
}

export async function grantAccess(
  username: string,
  where: string,
  role: EntryRole,
  options: GrantOptions,
): Promise<void> {
  const loaded = loadFor(options);
  const place = readPlace(where);
  const isBeside = options.beside === true;
  if (isBeside && options.expires === undefined) {
    throw new UsageError("--beside leaves the lasting entry: say by --expires when this one ends");
  }
  const grant = readEntry({ username, ...place }, keysOf(role, options));
  const plan: Plan = (current) => planGrant(current, "operator", grant, { isBeside });
  const snapshot = await changeAccess(loaded, { username, database: where }, plan, options);
  const limits = limitsInWords(grant);
  for (const odd of entryOddities(snapshot, grant, Date.now())) {
    warn(odd);
  }
  print(`${username} is ${role} on ${where}${limits === "" ? "" : `: ${limits}`}.`);
  const about = `the entry of ${username} for ${where}`;
  for (const missing of await missingNames(loaded, [[about, grant]])) warn(missing);
}

export async function revokeAccess(
  username: string,
  where: string,
  options: CommonOptions & { force?: true },
): Promise<void> {
  const loaded = loadFor(options);
  const { database, table } = readPlace(where);
  const plan: Plan = (current) => planRevoke(current, "operator", username, database, table);
  const snapshot = await changeAccess(loaded, { username, database: where }, plan, options);
  const left = entriesInWords(snapshot, username);
  print(`${username} has no entry for ${where} any more; what is left: ${left}`);
}

/** True for an entry that names the table or the same pattern, or has a pattern that matches it. */
function concernsTable({ tables = [] }: Grant, table: string): boolean {
  return tables.some((known) => {
    const prefix = prefixOf(known);
    return known === table || (prefix !== undefined && table.startsWith(prefix));
  });
}

interface ListOptions extends CommonOptions {
  readonly user?: string;
  readonly database?: string;
  readonly table?: string;
}

/** `access list`: all entries, or those of a user, a database or a table. */
export async function listAccess(options: ListOptions): Promise<void> {
  const { user, database, table } = options;
  const snapshot = await readAccess(loadFor(options));
  const [name, place = database] = table?.split(".", 2).reverse() ?? [];
  const isMeant = (grant: Grant) =>
    [database, place].every((one) => one === undefined || grant.database === one) &&
    (name === undefined || concernsTable(grant, name));
  const names = user === undefined ? snapshot.grants.keys() : [user].values();
  const entries = [...names.flatMap((name) => entriesIn(grantsOf(snapshot, name)).filter(isMeant))];
  if (options.json) {
    return printJson(entries.map((grant) => ({ username: grant.username, ...viewEntry(grant) })));
  }
  const isPlain = entries.every((one) => one.tables === undefined && limitsInWords(one) === "");
  const head = ["USERNAME", "DATABASE", "ROLE", ...(isPlain ? [] : ["TABLES", "LIMITS"])];
  printList(entries, {}, head, (grant) => [
    ...[grant.username, grant.database, grant.role],
    ...(isPlain ? [] : [grant.tables?.join(", ") ?? "-", limitsInWords(grant) || "-"]),
  ]);
}
