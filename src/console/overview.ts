import { manageableBy } from "../access/administration.ts";
import { entriesIn } from "../access/entries.ts";
import type { Grant } from "../access/grant.ts";
import { grantsOf } from "../access/snapshot.ts";
import { runCooperatively, visitEach } from "../cooperative-scheduling.ts";
import type { AuditSummary, DeniedName, HourCount } from "../observe/audit-summary.ts";
import { type Html, html, type Part } from "../pages/html.ts";
import { groupsOf, timeLeft, titled } from "./approvals.ts";
import { askAudit, draftedPlace, draftGrant, draftLink, visibleTo } from "./audit.ts";
import { placeOf } from "./changes.ts";
import {
  empty,
  heading,
  hint,
  pathOf,
  roleBadge,
  table,
  unseen,
  until,
  userLink,
} from "./frame.ts";
import { type AccessEvent, conditionOf, summary, versionList } from "./state.ts";
import { type ConsoleRequest, sendPage, type Visitor, visitorOf } from "./visit.ts";

const HOUR_MS = 3_600_000;
const HOURS = 24;
const WEEK_MS = 7 * 24 * HOUR_MS;
const SHOWN = 5;
const TIMEOUT_MS = 3000;
/** Hard limit, since `TIMEOUT_MS` does not interrupt the reading of a compressed file. */
const LONGEST_MS = 10_000;

/** In SVG units: the chart area, and the room for labels. */
const chart = { width: 720, height: 190, right: 40, top: 12, bottom: 26 };
const bottom = chart.height - chart.bottom;
const room = bottom - chart.top;
const step = (chart.width - chart.right) / HOURS;
/** Makes a single denial visible and clickable. */
const LEAST_HEIGHT = 4;

function roundedUp(count: number): number {
  const power = 10 ** Math.floor(Math.log10(Math.max(count, 4)));
  return [1, 2, 5, 10].map((times) => times * power).find((one) => one >= count) ?? count;
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

function bars(one: HourCount, at: number, most: number, since: number): Part {
  const { queries, denials } = one;
  if (queries === 0) return undefined;
  const x = at * step;
  const heightOf = (count: number, least: number) =>
    count > 0 ? Math.max(least, (count / most) * room) : 0;
  const denied = heightOf(denials, LEAST_HEIGHT);
  const allowed = heightOf(queries - denials, LEAST_HEIGHT / 2);
  const bar = (name: string, from: number, size: number) =>
    size > 0 &&
    html`<rect class="${name}"${name === "denied" && html` fill="url(#denied)"`} x="${(x + step * 0.15).toFixed(1)}" y="${(bottom - from - size).toFixed(1)}" width="${(step * 0.7).toFixed(1)}" height="${size.toFixed(1)}"/>`;
  const begin = since + at * HOUR_MS;
  const label = `${clock(begin)} UTC: ${queries} queries, ${denials} denied`;
  return html`<a href="${linesOf(begin, one)}" aria-label="${label}"><title>${label}</title><rect class="hit" x="${x.toFixed(1)}" y="${chart.top}" width="${step.toFixed(1)}" height="${room}"/>${bar("allowed", 0, allowed)}${bar("denied", allowed, denied)}</a>`;
}

function drawing(hours: readonly HourCount[], since: number): Html {
  const { width, height, right } = chart;
  const most = roundedUp(Math.max(...hours.map(({ queries }) => queries)));
  const lines = [0, 0.5, 1].map((part) => {
    const y = (bottom - part * room).toFixed(1);
    return html`<line x1="0" x2="${width - right}" y1="${y}" y2="${y}"/><text class="scale" x="${width - right + 6}" y="${y}">${shortly(most * part)}</text>`;
  });
  const times = hours.map(
    (_, at) =>
      at % 3 === 0 &&
      html`<text x="${((at + 0.5) * step).toFixed(1)}" y="${height - 8}">${clock(since + at * HOUR_MS)}</text>`,
  );
  return html`<div class="chart"><svg viewBox="0 0 ${width} ${height}" role="group" aria-label="Queries and denials per hour">
<defs><pattern id="denied" width="6" height="6" patternUnits="userSpaceOnUse" patternTransform="rotate(45)"><rect width="6" height="6"/><line x1="0" y1="0" x2="0" y2="6"/></pattern></defs>
<g class="grid" aria-hidden="true">${lines}${times}</g>
${hours.map((one, at) => bars(one, at, most, since))}
</svg></div>`;
}

function hourTable(hours: readonly HourCount[], since: number): Html {
  const rows = hours.map((one, at) => {
    const begin = since + at * HOUR_MS;
    const time = `${new Date(begin).toISOString().slice(0, 10)} ${clock(begin)}`;
    const link = html`<a href="${linesOf(begin, one)}">${time}</a>`;
    return [one.queries === 0 ? time : link, one.queries, one.denials];
  });
  const columns = [
    ["Hour, UTC", "moment"],
    ["Queries", "number"],
    ["Denials", "number"],
  ] as const;
  return html`<details><summary>As a table</summary>${table("Queries and denials per hour", columns, rows.toReversed())}</details>`;
}

function deniedTable(visitor: Visitor, column: "user" | "table", list: readonly DeniedName[]) {
  if (list.length === 0) return empty("None was denied in the last day.");
  return table(
    `Most denied ${column}s`,
    [column === "user" ? "User" : "Table", ["Denials", "number"], "Last reason"],
    list.map(({ name, count, last }) => {
      const path = pathOf("/audit", { [column]: name, outcome: "denied", since: "24h" });
      const draft = draftGrant(visitor, last);
      const what = draft && ` of ${draft.role} on ${draftedPlace(draft)} to ${draft.user}`;
      return [
        html`<a href="${path}"><bdi>${name}</bdi></a>`,
        count,
        html`<code>${last.reason ?? "denied"}</code>${draft && draftLink(draft, "Draft a grant", unseen(what))}`,
      ];
    }),
  );
}

function activity(visitor: Visitor, since: number, summary: AuditSummary | undefined): Html {
  if (summary === undefined) {
    return empty("The audit cannot be read just now. Load the page again in a moment.");
  }
  const { hours, users, tables, isSampled, isPartial } = summary;
  const notes = [
    isSampled && "The numbers are estimates: the audit is too large to be read whole.",
    isPartial && "Some of the day is missing: reading the audit took too long.",
    !visitor.isAdministrator && "You are shown the databases on which you may grant.",
  ];
  return html`<div class="sheet">
<p class="legend"><span class="key allowed"></span> Allowed, or held for approval <span class="key denied"></span> Denied ${hint("Per hour, UTC. A bar leads to its lines of the audit.")}</p>
${drawing(hours, since)}
${hourTable(hours, since)}
</div>
${notes.map((note) => note && html`<p class="quiet">${note}</p>`)}
<div class="choices">
<section><h2>Most denied users</h2>${deniedTable(visitor, "user", users)}</section>
<section><h2>Most denied tables</h2>${deniedTable(visitor, "table", tables)}</section>
</div>`;
}

const notCounted = html`<div class="sheet"><p>Queries are not counted, since the audit goes to the log. Set a file in <code>gateway.toml</code>, and start the gateway again:</p>
<pre>[audit]
file = "audit.log"</pre></div>`;

/** Summarizes the audit of the last day; undefined if there is no file or it cannot be read now. */
async function askSummary(c: ConsoleRequest, since: number): Promise<AuditSummary | undefined> {
  const { configuration, log } = c.var.gateway;
  const { file } = configuration.audit;
  if (file === undefined) return undefined;
  const bounds = { since, hours: HOURS, top: SHOWN, timeoutMs: TIMEOUT_MS };
  try {
    const question = { file, visible: visibleTo(visitorOf(c)), ...bounds };
    return await askAudit<AuditSummary>(c, question, LONGEST_MS);
  } catch (error) {
    const reason = error instanceof Error ? error.message : "unknown";
    log.warn({ file, reason }, "the audit cannot be counted");
    return undefined;
  }
}

/** Grants that end within a week, on databases that the visitor manages, or the visitor's own. */
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

/** The latest changes: all for an administrator, otherwise those on managed databases. */
async function lastChanges(c: ConsoleRequest, visitor: Visitor): Promise<AccessEvent[]> {
  const { snapshot, actor, isAdministrator, isManager } = visitor;
  if (!isManager) return [];
  const events = await c.var.history.events();
  if (isAdministrator) return events.slice(0, SHOWN);
  const { isVisible } = manageableBy(snapshot, actor);
  return events
    .flatMap((event): AccessEvent[] => {
      if (!("version" in event)) return [];
      const effects = event.effects.filter(({ place }) => isVisible(place.split(".")[0] ?? ""));
      return effects.length === 0 ? [] : [{ ...event, effects, records: [], hasOthers: false }];
    })
    .slice(0, SHOWN);
}

export async function showOverview(c: ConsoleRequest): Promise<Response> {
  const visitor = visitorOf(c);
  const { isAdministrator, isManager } = visitor;
  const { gateway, history } = c.var;
  const now = Date.now();
  const since = Math.floor(now / HOUR_MS) * HOUR_MS - (HOURS - 1) * HOUR_MS;
  const { waiting = [], others = [] } = await groupsOf(c, visitor);
  const pending = [...waiting, ...others];
  const ending = await endingGrants(visitor, now);
  const condition = isAdministrator && (await conditionOf(c.var));
  const counted = isManager ? await askSummary(c, since) : undefined;
  const changes = await lastChanges(c, visitor);
  const sum = (name: keyof HourCount) =>
    counted?.hours.reduce((total, hour) => total + hour[name], 0);
  const figure = (label: string, count: number | undefined) =>
    html`<div class="sheet"><dt>${label}</dt><dd>${count === undefined ? "-" : shortly(count)}</dd></div>`;
  const [morePending, moreEnding] = [pending.length - SHOWN, ending.length - SHOWN];
  const pendingTable = () =>
    table(
      "Pending approvals",
      ["What", "Asked by", ["Ends", "moment"], "Decided by"],
      pending
        .slice(0, SHOWN)
        .map((one, at) => [
          titled(one),
          html`<bdi>${one.username}</bdi>`,
          timeLeft(one.expires, now),
          at < waiting.length ? html`<strong>you</strong>` : "others",
        ]),
    );
  const endingTable = () =>
    table(
      "Grants that end this week",
      ["User", "Where", "Role", ["Until", "moment"]],
      ending
        .slice(0, SHOWN)
        .map((grant) => [
          isManager ? userLink(grant.username) : html`<bdi>${grant.username}</bdi>`,
          html`<code>${placeOf(grant)}</code>`,
          roleBadge(grant.role),
          until(grant, now),
        ]),
    );
  const hasFile = gateway.configuration.audit.file !== undefined;
  const queries = html`<h2>Queries in the last day</h2>${hasFile ? activity(visitor, since, counted) : notCounted}`;
  return sendPage(c, {
    title: "Overview",
    place: "Overview",
    content: html`${heading("Overview")}
${condition && summary(c.var, condition)}
<dl class="figures">${isManager && [figure("Queries in the last day", sum("queries")), figure("Denied", sum("denials"))]}${figure("Approvals for you to decide", waiting.length)}${figure("Grants that end this week", ending.length)}</dl>
${isManager && queries}
<h2>Pending approvals</h2>
${pending.length > 0 ? pendingTable() : empty("Nothing waits for approval.")}${morePending > 0 && html`<p><a href="/approvals">${morePending} more</a></p>`}
<h2>Grants that end this week</h2>
${ending.length > 0 ? endingTable() : empty("No grant ends within a week.")}${moreEnding > 0 && html`<p class="quiet">${moreEnding} more end this week.</p>`}
${isManager && html`<h2>Last changes</h2>${versionList(changes, history.since)}`}`,
  });
}
