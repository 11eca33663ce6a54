import { type LiveAccess, openAccessFile } from "../access/live.ts";
import type { Configuration } from "../config/schema.ts";
import type { Audit } from "../observe/audit.ts";
import type { Log } from "../observe/log.ts";
import type { Metrics } from "../observe/metrics.ts";
import { reportReload, warnOfNamesWithoutRecord } from "./reload-report.ts";

/** Opens the access file, whose reloads are told of, and puts its closing on the stack. */
export async function openAccess(
  { auth }: Configuration,
  { log, audit, metrics }: { log: Log; audit: Audit; metrics: Metrics },
  opened: AsyncDisposableStack,
): Promise<LiveAccess> {
  const access = await openAccessFile(auth.access_control_file, {
    checkRead: auth.check_permissions,
  });
  access.subscribe((event) => reportReload(log, audit, metrics, event));
  opened.defer(() => access.close());
  metrics.reloaded(access.snapshot.version);
  warnOfNamesWithoutRecord(log, access.snapshot);
  return access;
}
