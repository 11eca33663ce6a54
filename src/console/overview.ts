import { manageableBy } from "../access/administration-rights.ts";
import { type Grant, grantsOf } from "../access/snapshot.ts";
import { entriesIn } from "../access/user-grants.ts";
import { runCooperatively, visitEach } from "../cooperative-scheduling.ts";
import type { AuditSummary, SummaryQuestion } from "../observe/audit-summary.ts";
import type { AccessEvent } from "./access-history.ts";
import { groupsOf } from "./approvals.ts";
import { askAudit, shownTo } from "./audit.ts";
import { draftGrant } from "./audit-draft.ts";
import { mayGrantTo } from "./changes.ts";
import { overviewPage } from "./pages/overview.ts";
import { stateViewOf } from "./state.ts";
import { type ConsoleRequest, sendPage, type Visitor, visitorOf } from "./visit.ts";

const HOUR_MS = 3_600_000;
const HOURS = 24;
const WEEK_MS = 7 * 24 * HOUR_MS;
/** Rows of each list. */
const SHOWN = 5;
const PATIENCE_MS = 3000;
/** Reading a compressed file is not given up in between. */
const LONGEST_MS = 10_000;

/** What the audit tells of the last day; undefined if there is no file, or it cannot be read now. */
async function askSummary(
  c: ConsoleRequest,
  visitor: Visitor,
  since: number,
): Promise<AuditSummary | undefined> {
  const { auditFile: file, log } = c.var.options;
  if (file === undefined) return undefined;
  const bounds = { since, hours: HOURS, top: SHOWN, patience: PATIENCE_MS };
  const question: SummaryQuestion = { file, shown: shownTo(visitor), ...bounds };
  try {
    const signal = AbortSignal.any([c.req.raw.signal, AbortSignal.timeout(LONGEST_MS)]);
    return await askAudit<AuditSummary>(question, signal);
  } catch (error) {
    const reason = error instanceof Error ? error.message : "unknown";
    log.warn({ file, reason }, "the audit cannot be counted");
    return undefined;
  }
}

/** Grants that end within a week, the next to end first: those on databases that a visitor manages, or its own. */
async function endingGrants(visitor: Visitor, now: number): Promise<Grant[]> {
  const { snapshot, actor, isManager } = visitor;
  const isSoon = ({ expires = 0 }: Grant) => expires > now && expires <= now + WEEK_MS;
  const found: Grant[] = [];
  if (isManager) {
    const { isVisible } = manageableBy(snapshot, actor);
    const visit = (grants: ReturnType<typeof grantsOf>) => {
      for (const grant of entriesIn(grants)) {
        if (isSoon(grant) && isVisible(grant.database)) found.push(grant);
      }
    };
    await runCooperatively(visitEach(snapshot.grants.values(), visit));
  } else found.push(...entriesIn(grantsOf(snapshot, actor.username)).filter(isSoon));
  return found.sort((one, other) => (one.expires ?? 0) - (other.expires ?? 0));
}

/** The last changes that a visitor may see: an administrator all, others those on their databases. */
async function lastChanges(c: ConsoleRequest, visitor: Visitor): Promise<AccessEvent[]> {
  const { snapshot, actor, isAdministrator, isManager } = visitor;
  if (!isManager) return [];
  const events = await c.var.history.events();
  if (isAdministrator) return events.slice(0, SHOWN);
  const { isVisible } = manageableBy(snapshot, actor);
  return events
    .flatMap((event): AccessEvent[] => {
      if (event.kind !== "loaded") return [];
      const effects = event.effects.filter(({ place }) => isVisible(place.split(".")[0] ?? ""));
      return effects.length === 0 ? [] : [{ ...event, effects, records: [], hasOthers: false }];
    })
    .slice(0, SHOWN);
}

/** `GET /overview`: what happened in the last day, and what needs somebody. */
export async function showOverview(c: ConsoleRequest): Promise<Response> {
  const visitor = visitorOf(c);
  const { snapshot, actor, isAdministrator, isManager } = visitor;
  const now = Date.now();
  const since = Math.floor(now / HOUR_MS) * HOUR_MS - (HOURS - 1) * HOUR_MS;
  const groups = await groupsOf(c, visitor);
  const ending = await endingGrants(visitor, now);
  const page = overviewPage({
    ...{ now, since, isManager, shown: SHOWN, ending: ending.slice(0, SHOWN) },
    endingCount: ending.length,
    state: isAdministrator ? await stateViewOf(c) : undefined,
    hasFile: c.var.options.auditFile !== undefined,
    summary: isManager ? await askSummary(c, visitor, since) : undefined,
    draft: (line) =>
      mayGrantTo(snapshot, actor, line.user ?? "") ? draftGrant(snapshot, line) : undefined,
    waiting: (groups.get("waiting") ?? []).map(({ approval }) => approval),
    others: (groups.get("others") ?? []).map(({ approval }) => approval),
    changes: await lastChanges(c, visitor),
    historySince: c.var.options.earlierVersions === undefined ? c.var.history.since : undefined,
  });
  return sendPage(c, visitor, page);
}
