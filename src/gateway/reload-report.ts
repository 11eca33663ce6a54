import type { ReloadEvent } from "../access/access-rules.ts";
import { type DiffItem, describeItem } from "../access/diff.ts";
import { namesWithoutRecord } from "../access/parse.ts";
import { caseConflictsOf, isAdministrator } from "../access/policy.ts";
import { groupOf } from "../access/roles.ts";
import type { Snapshot } from "../access/snapshot.ts";
import type { ConfigurationReload } from "../config/reload.ts";
import type { Configuration } from "../config/schema.ts";
import { runCooperatively } from "../cooperative-scheduling.ts";
import type { Audit } from "../observe/audit.ts";
import type { Log } from "../observe/log.ts";
import type { Metrics } from "../observe/metrics.ts";

export interface ReloadRecords {
  readonly log: Log;
  readonly audit: Audit;
  readonly metrics: Metrics | undefined;
  readonly databases: () => readonly string[];
  readonly configuration: Pick<Configuration, "auth" | "issuers">;
}

const MAX_LISTED = 100;

function firstOf(lists: Record<string, readonly DiffItem[]>): Record<string, unknown> {
  const more: Record<string, number> = {};
  const listed = Object.entries(lists).flatMap(([kind, items]) => {
    if (items.length > MAX_LISTED) more[kind] = items.length - MAX_LISTED;
    return items.length === 0 ? [] : [[kind, items.slice(0, MAX_LISTED).map(describeItem)]];
  });
  return { ...Object.fromEntries(listed), ...(Object.keys(more).length === 0 ? {} : { more }) };
}

/**
 * False if it is certain that no administrator can sign in: passwords are off, and no administrator
 * is a user, or a group of tokens, of an issuer with `login`.
 */
function mayAdministratorSignIn(
  snapshot: Snapshot,
  { auth, issuers }: ReloadRecords["configuration"],
): boolean {
  if (auth.passwords || !auth.enabled) return true;
  const { users, groups, grants } = snapshot;
  const holders = grants
    .keys()
    .flatMap((name) => groups.get(groupOf(name) ?? "")?.members ?? [name]);
  return holders.some((username) => {
    const group = groupOf(username);
    const issuer = issuers.find(({ prefix }) => (group ?? username).startsWith(`${prefix}:`));
    const isKnown = group === undefined || issuer?.groups_claim !== undefined;
    const mayEnter = issuer?.login !== undefined && isKnown && !users.get(username)?.disabled;
    return mayEnter && isAdministrator(snapshot, { username });
  });
}

/** Warns about valid rules that may not mean what was intended. */
export async function warnOfSuspiciousRules(
  { log, databases, configuration }: Pick<ReloadRecords, "log" | "databases" | "configuration">,
  snapshot: Snapshot,
): Promise<void> {
  if (!mayAdministratorSignIn(snapshot, configuration)) {
    log.warn(
      "no administrator can sign in: auth.passwords is false, and no user or group of an issuer with login is Owner of *",
    );
  }
  const names = await runCooperatively(namesWithoutRecord(snapshot));
  if (names.length > 0)
    log.warn(firstOf({ names }), "the access file has grants for names without a record");
  for (const conflict of caseConflictsOf(snapshot, databases())) {
    log.warn(
      conflict,
      "the access file spells a database in a different case: everyone is denied access to it",
    );
  }
}

export function reportReload(records: ReloadRecords, event: ReloadEvent): void {
  const { log, audit, metrics } = records;
  if (event.kind === "failed") {
    const { file, problems } = event;
    for (const { line, reason } of problems) {
      log.error({ file, line, reason }, "access file refused: the last good state stays in force");
      audit.event("access file refused", { file, line, reason }, "error");
    }
    metrics?.reloadFailed();
    return;
  }
  const { snapshot, diff } = event;
  const changes = firstOf({ ...diff });
  log.info({ version: snapshot.version, ...changes }, "access file reloaded");
  metrics?.reloaded(snapshot.version);
  void warnOfSuspiciousRules(records, snapshot);
}

export function failureOf(reload: ConfigurationReload): string | undefined {
  if (reload.kind !== "refused") return undefined;
  return reload.problems
    .map(({ line, reason }) => (line === undefined ? reason : `line ${line}: ${reason}`))
    .join("; ");
}

export function reportConfiguration(log: Log, reload: ConfigurationReload): void {
  if (reload.kind === "refused") {
    for (const { source: file, line, key, reason } of reload.problems) {
      const what = { file, line, key, reason };
      log.error(what, "configuration refused: the last good state stays in force");
    }
    return;
  }
  if (reload.kind === "found") {
    const { file } = reload;
    log.warn({ file }, "a configuration file was created: restart to apply it");
    return;
  }
  const { changes } = reload;
  const changed = changes.filter(({ isLive }) => isLive).map(({ text }) => text);
  if (changed.length > 0) log.info({ changed }, "configuration reloaded");
  else if (changes.length === 0) log.info("the configuration is valid again; nothing has changed");
  const keys = changes.filter(({ isLive }) => !isLive).map(({ text }) => text);
  if (keys.length > 0) log.warn({ keys }, "these configuration keys take effect after a restart");
}
