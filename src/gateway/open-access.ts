import { openAccessFile } from "../access/access-file.ts";
import type { AccessRules } from "../access/access-rules.ts";
import type { LoadedConfiguration } from "../config/load.ts";
import type { Audit } from "../observe/audit.ts";
import type { Log } from "../observe/log.ts";
import type { Metrics } from "../observe/metrics.ts";
import { knownDatabases } from "./known-databases.ts";
import type { Membership } from "./member.ts";
import { reportReload, warnOfOddities } from "./reload-report.ts";

/** Opens the access file, whose reloads are told of, and puts its closing on the stack. */
export async function openAccess(
  loaded: LoadedConfiguration,
  observers: { log: Log; audit: Audit; metrics: Metrics },
  member: Membership | undefined,
  opened: AsyncDisposableStack,
): Promise<AccessRules> {
  const { auth } = loaded.configuration;
  const records = { ...observers, databases: () => knownDatabases(loaded) };
  const access = await openAccessFile(auth.access_control_file, {
    checkRead: auth.check_permissions,
    ...(member === undefined ? {} : { tellOthers: () => member.tellOthers("access") }),
  });
  access.subscribe((event) => reportReload(records, event));
  opened.defer(() => access.close());
  records.metrics.reloaded(access.snapshot.version);
  await warnOfOddities(records, access.snapshot);
  return access;
}
