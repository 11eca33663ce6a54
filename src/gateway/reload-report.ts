import type { ReloadEvent } from "../access/live.ts";
import { namesWithoutRecord } from "../access/parse.ts";
import type { Snapshot } from "../access/snapshot.ts";
import type { Audit } from "../observe/audit.ts";
import type { Log } from "../observe/log.ts";
import type { Metrics } from "../observe/metrics.ts";

/** Warns of names that have grants but no record, which may be a slip of the pen. */
export function warnOfNamesWithoutRecord(log: Log, snapshot: Snapshot): void {
  const names = namesWithoutRecord(snapshot);
  if (names.length > 0)
    log.warn({ names }, "the access file has grants for names without a record");
}

/** Tells log, audit and figures what a reload of the access file came to. */
export function reportReload(log: Log, audit: Audit, metrics: Metrics, event: ReloadEvent): void {
  if (event.kind === "failed") {
    const { file, line, reason } = event;
    log.error({ file, line, reason }, "access file refused: the last good state stays in force");
    audit.event("access file refused", { file, line, reason });
    metrics.reloadFailed();
    return;
  }
  const { snapshot, diff } = event;
  const changes = Object.fromEntries(Object.entries(diff).filter(([, names]) => names.length > 0));
  log.info({ version: snapshot.version, ...changes }, "access file reloaded");
  audit.event("access file reloaded", { version: snapshot.version, ...changes });
  metrics.reloaded(snapshot.version);
  warnOfNamesWithoutRecord(log, snapshot);
}
