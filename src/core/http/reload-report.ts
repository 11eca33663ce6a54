import type { ReloadEvent } from "../access/access-rules.ts";
import { greatestStandings, standing } from "../access/administration.ts";
import { type DiffItem, describeItem } from "../access/diff.ts";
import { callerFor } from "../access/groups.ts";
import { groupOf, holderText } from "../access/holder.ts";
import { holdersWithoutRecord } from "../access/parse.ts";
import { caseConflictsOf, isAdministrator } from "../access/policy.ts";
import { EVERY_DATABASE } from "../access/roles.ts";
import { obstacleOf, type Snapshot } from "../access/snapshot.ts";
import { runCooperatively, type Steps } from "../base/cooperative-scheduling.ts";
import type { ConfigurationReload } from "../config/reload.ts";
import type { Configuration } from "../config/schema.ts";
import type { Audit } from "../observe/audit.ts";
import type { Log } from "../observe/log.ts";
import type { Metrics } from "../observe/metrics.ts";

interface ReloadRecords {
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

/** Warns unless a user with an own entry can administer, and says which groups do. */
export function* administratorWarning(
  snapshot: Snapshot,
  { auth, issuers }: ReloadRecords["configuration"],
): Steps<string | undefined> {
  if (!auth.enabled) return undefined;
  const issuerOf = (name: string) => issuers.find(({ prefix }) => name.startsWith(`${prefix}:`));
  const signsIn = (username: string) => issuerOf(username)?.login !== undefined;
  const standings = yield* greatestStandings(snapshot, auth.passwords ? undefined : signsIn);
  if (standings.get(EVERY_DATABASE) === standing.byOwnEntry) return undefined;
  const administers = (username: string) =>
    obstacleOf(snapshot, username) === undefined &&
    isAdministrator(snapshot, { username }) &&
    (auth.passwords || signsIn(username));
  const groups = snapshot.grants.keys().flatMap((holder) => {
    const group = groupOf(holder);
    if (group === undefined || !isAdministrator(snapshot, callerFor(holder))) return [];
    const members = snapshot.groups.get(group)?.members;
    const isOfTokens = issuerOf(group)?.groups_claim !== undefined;
    const isEntered = auth.passwords || issuerOf(group)?.login !== undefined;
    return (members?.some(administers) ?? (isOfTokens && isEntered)) ? [group] : [];
  });
  const names = [...groups].join(", ");
  if (names !== "") {
    return `no user who can log in is permanently Owner of * by an entry of their own; administrators are only members of groups: ${names}`;
  }
  return auth.passwords
    ? "no administrator can log in: no user with a password is permanently Owner of *"
    : "no administrator can sign in: auth.passwords is false, and no user or group of an issuer with login is Owner of *";
}

/** Warns about valid rules that may not mean what was intended. */
export async function warnOfSuspiciousRules(
  { log, databases, configuration }: Pick<ReloadRecords, "log" | "databases" | "configuration">,
  snapshot: Snapshot,
): Promise<void> {
  const warning = await runCooperatively(administratorWarning(snapshot, configuration));
  if (warning !== undefined) log.warn(warning);
  const holders = await runCooperatively(holdersWithoutRecord(snapshot));
  const names = holders.map(holderText);
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
