import { manageableBy } from "../access/administration.ts";
import { entriesIn } from "../access/entries.ts";
import type { Grant } from "../access/grant.ts";
import { grantsOf } from "../access/snapshot.ts";
import { type Approval, summaryOf } from "../approvals/approval.ts";
import { runCooperatively, visitEach } from "../cooperative-scheduling.ts";
import type { ReadLine } from "../observe/audit-filter.ts";
import type {
  AuditSummary,
  DeniedName,
  HourCount,
  SummaryQuestion,
} from "../observe/audit-summary.ts";
import { type Html, html, nothing } from "../pages/html.ts";
import type { AccessEvent } from "./access-history.ts";
import { groupsOf, timeLeft } from "./approvals.ts";
import { askAudit, type DraftedGrant, draftGrant, shownTo } from "./audit.ts";
import { mayGrantTo, placeOf } from "./changes.ts";
import { type ConsolePage, heading, pathOf, roleBadge, table, until } from "./frame.ts";
import { type StateView, summary as stateSummary, stateViewOf, versionList } from "./state.ts";
import { type ConsoleRequest, sendPage, type Visitor, visitorOf } from "./visit.ts";

/** Times in epoch milliseconds. */
interface OverviewView {
  readonly now: number;
  readonly since: number;
  readonly isManager: boolean;
  readonly shown: number;
  readonly state: StateView | undefined;
  /** False if the audit goes to the log. */
  readonly hasFile: boolean;
  /** Undefined if it cannot be read now. */
  readonly summary: AuditSummary | undefined;
  readonly draft: (line: ReadLine) => DraftedGrant | undefined;
  readonly waiting: readonly Approval[];
  readonly others: readonly Approval[];
  readonly ending: readonly Grant[];
  readonly endingCount: number;
  readonly changes: readonly AccessEvent[];
  /** Epoch seconds since when changes are known; undefined if a log has all. */
  readonly historySince: number | undefined;
}

const HOUR_MS = 3_600_000;
/** In SVG units: the chart area, and the room for labels. */
const chart = { width: 720, height: 190, right: 40, top: 12, bottom: 26 };
/** Makes a single denial visible and clickable. */
const LEAST_HEIGHT = 4;

/** Rounds up to 1, 2 or 5 times a power of ten. */
function roundedUp(count: number): number {
  const power = 10 ** Math.floor(Math.log10(Math.max(count, 4)));
  return [1, 2, 5, 10].map((step) => step * power).find((step) => step >= count) ?? count;
}

function clock(moment: number): string {
  return new Date(moment).toISOString().slice(11, 16);
}

function shortly(count: number): string {
  return count.toLocaleString("en", { notation: "compact" });
}

function linesOf(begin: number, { denials }: HourCount): string {
  const [since, to] = [begin, begin + HOUR_MS].map((one) =>
    new Date(one).toISOString().slice(0, 16),
  );
  return pathOf("/audit", { since, until: to, outcome: denials > 0 ? "denied" : undefined });
}

function bars(one: HourCount, at: number, count: number, most: number, since: number): Html {
  const { queries, denials } = one;
  if (queries === 0) return nothing;
  const { width, height, right, top, bottom } = chart;
  const step = (width - right) / count;
  const x = at * step;
  const room = height - top - bottom;
  const denied = denials === 0 ? 0 : Math.max(LEAST_HEIGHT, (denials / most) * room);
  const allowed = Math.max(
    queries > denials ? LEAST_HEIGHT / 2 : 0,
    ((queries - denials) / most) * room,
  );
  const bar = (name: string, from: number, size: number) =>
    size === 0
      ? nothing
      : html`<rect class="${name}"${name === "denied" ? html` fill="url(#denied)"` : nothing} x="${(x + step * 0.15).toFixed(1)}" y="${(height - bottom - from - size).toFixed(1)}" width="${(step * 0.7).toFixed(1)}" height="${size.toFixed(1)}"/>`;
  const begin = since + at * HOUR_MS;
  const label = `${clock(begin)} UTC: ${queries} queries, ${denials} denied`;
  return html`<a href="${linesOf(begin, one)}" aria-label="${label}"><title>${label}</title><rect class="hit" x="${x.toFixed(1)}" y="${String(top)}" width="${step.toFixed(1)}" height="${String(room)}"/>${bar("allowed", 0, allowed)}${bar("denied", allowed, denied)}</a>`;
}

function drawing(hours: readonly HourCount[], since: number): Html {
  const { width, height, right, top, bottom } = chart;
  const most = roundedUp(Math.max(...hours.map(({ queries }) => queries)));
  const step = (width - right) / hours.length;
  const lines = [0, 0.5, 1].map((part) => {
    const y = (height - bottom - part * (height - top - bottom)).toFixed(1);
    return html`<line x1="0" x2="${String(width - right)}" y1="${y}" y2="${y}"/><text class="scale" x="${String(width - right + 6)}" y="${y}">${shortly(most * part)}</text>`;
  });
  const times = hours.map((_, at) =>
    at % 3 === 0
      ? html`<text x="${((at + 0.5) * step).toFixed(1)}" y="${String(height - 8)}">${clock(since + at * HOUR_MS)}</text>`
      : nothing,
  );
  return html`<div class="chart"><svg viewBox="0 0 ${String(width)} ${String(height)}" role="group" aria-label="Queries and denials per hour">
<defs><pattern id="denied" width="6" height="6" patternUnits="userSpaceOnUse" patternTransform="rotate(45)"><rect width="6" height="6"/><line x1="0" y1="0" x2="0" y2="6"/></pattern></defs>
<g class="grid" aria-hidden="true">${lines}${times}</g>
${hours.map((one, at) => bars(one, at, hours.length, most, since))}
</svg></div>`;
}

function hourTable(hours: readonly HourCount[], since: number): Html {
  const rows = hours.map((one, at) => {
    const begin = since + at * HOUR_MS;
    const time = html`${new Date(begin).toISOString().slice(0, 10)} ${clock(begin)}`;
    const link = html`<a href="${linesOf(begin, one)}">${time}</a>`;
    return [one.queries === 0 ? time : link, String(one.queries), String(one.denials)];
  });
  return html`<details><summary>As a table</summary>${table(
    "Queries and denials per hour",
    [
      ["Hour, UTC", "moment"],
      ["Queries", "number"],
      ["Denials", "number"],
    ],
    rows.toReversed(),
  )}</details>`;
}

function deniedTable(
  label: string,
  column: "user" | "table",
  list: readonly DeniedName[],
  draft: OverviewView["draft"],
): Html {
  if (list.length === 0) return html`<p class="sheet empty">None was denied in the last day.</p>`;
  return table(
    label,
    [column === "user" ? "User" : "Table", ["Denials", "number"], "Last reason"],
    list.map(({ name, count, last }) => {
      const path = pathOf("/audit", { [column]: name, outcome: "denied", since: "24h" });
      const drafted = draft(last);
      const link =
        drafted === undefined
          ? nothing
          : html`<span class="hint"><a href="${pathOf("/access/entry", { ...drafted })}">Draft a grant<span class="unseen"> of ${drafted.role} on ${drafted.database}${drafted.table === undefined ? "" : `.${drafted.table}`} to ${drafted.user}</span></a></span>`;
      return [
        html`<a href="${path}"><bdi>${name}</bdi></a>`,
        String(count),
        html`<code>${last.reason ?? "denied"}</code>${link}`,
      ];
    }),
  );
}

function activity(view: OverviewView): Html {
  const { hasFile, summary, since, draft } = view;
  if (!hasFile) {
    return html`<div class="sheet"><p>Queries are not counted, since the audit goes to the log. Set a file in <code>gateway.toml</code>, and start the gateway again:</p>
<pre>[audit]
file = "audit.log"</pre></div>`;
  }
  if (summary === undefined) {
    return html`<p class="sheet empty">The audit cannot be read just now. Load the page again in a moment.</p>`;
  }
  const { hours, users, tables, isSampled, isPartial } = summary;
  const notes = [
    ...(isSampled ? ["The numbers are estimates: the audit is too large to be read whole."] : []),
    ...(isPartial ? ["Some of the day is missing: reading the audit took too long."] : []),
    ...(view.state === undefined ? ["You are shown the databases on which you may grant."] : []),
  ];
  return html`<div class="sheet">
<p class="legend"><span class="key allowed"></span> Allowed, or held for approval <span class="key denied"></span> Denied <span class="hint">Per hour, UTC. A bar leads to its lines of the audit.</span></p>
${drawing(hours, since)}
${hourTable(hours, since)}
</div>
${notes.map((note) => html`<p class="quiet">${note}</p>`)}
<div class="choices">
<section><h2>Most denied users</h2>${deniedTable("Most denied users", "user", users, draft)}</section>
<section><h2>Most denied tables</h2>${deniedTable("Most denied tables", "table", tables, draft)}</section>
</div>`;
}

function approvals({ waiting, others, shown, now }: OverviewView): Html {
  const all = [...waiting, ...others];
  if (all.length === 0) return html`<p class="sheet empty">Nothing waits for approval.</p>`;
  const more = all.length - shown;
  return html`${table(
    "Pending approvals",
    ["What", "Asked by", ["Ends", "moment"], "Decided by"],
    all
      .slice(0, shown)
      .map((one, at) => [
        html`<a href="/approvals/${one.id}"><code>${summaryOf(one)}</code></a>`,
        html`<bdi>${one.username}</bdi>`,
        timeLeft(one.expires, now),
        at < waiting.length ? html`<strong>you</strong>` : "others",
      ]),
  )}${more > 0 ? html`<p><a href="/approvals">${String(more)} more</a></p>` : nothing}`;
}

function ending({ ending: grants, endingCount, isManager, now }: OverviewView): Html {
  if (grants.length === 0) return html`<p class="sheet empty">No grant ends within a week.</p>`;
  const more = endingCount - grants.length;
  return html`${table(
    "Grants that end this week",
    ["User", "Where", "Role", ["Until", "moment"]],
    grants.map((grant) => [
      isManager
        ? html`<a href="${pathOf("/access/user", { user: grant.username })}"><bdi>${grant.username}</bdi></a>`
        : html`<bdi>${grant.username}</bdi>`,
      html`<code>${placeOf(grant)}</code>`,
      roleBadge(grant.role),
      until(grant, now),
    ]),
  )}${more > 0 ? html`<p class="quiet">${String(more)} more end this week.</p>` : nothing}`;
}

function figures({ summary, waiting, endingCount, isManager }: OverviewView): Html {
  const sum = (name: keyof HourCount) =>
    summary?.hours.reduce((total, hour) => total + hour[name], 0);
  const counts: [string, number | undefined][] = [
    ...(isManager
      ? ([
          ["Queries in the last day", sum("queries")],
          ["Denied", sum("denials")],
        ] as [string, number | undefined][])
      : []),
    ["Approvals for you to decide", waiting.length],
    ["Grants that end this week", endingCount],
  ];
  return html`<dl class="figures">${counts.map(([label, count]) => html`<div class="sheet"><dt>${label}</dt><dd>${count === undefined ? "-" : shortly(count)}</dd></div>`)}</dl>`;
}

function overviewPage(view: OverviewView): ConsolePage {
  const { state, isManager, changes, now, historySince } = view;
  return {
    title: "Overview",
    place: "overview",
    content: html`${heading("Overview")}
${state === undefined ? nothing : stateSummary(state, Math.floor(now / 1000))}
${figures(view)}
${isManager ? html`<h2>Queries in the last day</h2>${activity(view)}` : nothing}
<h2>Pending approvals</h2>
${approvals(view)}
<h2>Grants that end this week</h2>
${ending(view)}
${isManager ? html`<h2>Last changes</h2>${versionList(changes, historySince)}` : nothing}`,
  };
}

const HOURS = 24;
const WEEK_MS = 7 * 24 * HOUR_MS;
/** Rows per list. */
const SHOWN = 5;
const PATIENCE_MS = 3000;
/** Hard limit, since `PATIENCE_MS` does not interrupt the reading of a compressed file. */
const LONGEST_MS = 10_000;

/** Summarizes the audit of the last day; undefined if there is no file or it cannot be read now. */
async function askSummary(
  c: ConsoleRequest,
  visitor: Visitor,
  since: number,
): Promise<AuditSummary | undefined> {
  const { configuration, log } = c.var.gateway;
  const { file } = configuration.audit;
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

/**
 * Grants that expire within a week, soonest first: those on databases that the visitor manages, or
 * the visitor's own.
 */
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

/**
 * The latest changes that a visitor may see: all for an administrator, otherwise those on managed
 * databases.
 */
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

/** `GET /overview`: what happened in the last day, and what needs attention. */
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
    hasFile: c.var.gateway.configuration.audit.file !== undefined,
    summary: isManager ? await askSummary(c, visitor, since) : undefined,
    draft: (line) =>
      mayGrantTo(snapshot, actor, line.user ?? "") ? draftGrant(snapshot, line) : undefined,
    waiting: (groups.get("waiting") ?? []).map(({ approval }) => approval),
    others: (groups.get("others") ?? []).map(({ approval }) => approval),
    changes: await lastChanges(c, visitor),
    historySince: c.var.history.since,
  });
  return sendPage(c, visitor, page);
}
