import { entriesIn } from "../../core/access/entries.ts";
import { describePlace, type Grant, holderText } from "../../core/access/grant.ts";
import { allEntries } from "../../core/access/groups.ts";
import { errorMessage } from "../../core/base/client-error.ts";
import { runCooperatively, visitEach } from "../../core/base/cooperative-scheduling.ts";
import { type Html, html } from "../../core/base/html.ts";
import { visibleTokens } from "../../core/http/administration.ts";
import { expiresSoon } from "../../core/identity/token-file.ts";
import { splitPlace } from "../../core/query/names.ts";
import { approvalLink, groupApprovals, timeLeft } from "./approvals.ts";
import { askAudit, denialReason, draftedPlace, draftGrant, draftLink, visibleTo } from "./audit.ts";
import type { AuditSummary, NameCount, PeriodCount } from "./audit-summary.ts";
import {
  empty,
  expiry,
  hint,
  pathOf,
  roleBadge,
  table,
  unseen,
  userLink,
  type Visitor,
} from "./frame.ts";
import type { AccessEvent } from "./history.ts";
import {
  dateInWords,
  localTime,
  readLocalTime,
  timeElement,
  zoneInUse,
  zoneOffset,
} from "./moment.ts";
import { conditionOf, summary, versionList } from "./state.ts";
import { tokenExpiry, tokenName } from "./tokens.ts";
import { type ConsoleRequest, sendPage, visitorOf } from "./visit.ts";

const MINUTE_MS = 60_000;
const HOUR_MS = 60 * MINUTE_MS;
const WEEK_MS = 7 * 24 * HOUR_MS;

/** A choice of the last hour, day or week, counted in `count` periods. */
interface Span {
  readonly name: string;
  /** Its period in the form of the audit. */
  readonly since: string;
  readonly periodMs: number;
  readonly count: number;
  /** Matches the local times at which the axis has a label. */
  readonly tick: RegExp;
  readonly each: string;
}

const day: Span = {
  name: "day",
  since: "24h",
  periodMs: HOUR_MS,
  count: 24,
  tick: /(?:00|03|06|09|12|15|18|21):00:00$/,
  each: "hour",
};
export const spans: readonly Span[] = [
  {
    name: "hour",
    since: "1h",
    periodMs: 2 * MINUTE_MS,
    count: 30,
    tick: /0:00$/,
    each: "two minutes",
  },
  day,
  {
    name: "week",
    since: "7d",
    periodMs: 6 * HOUR_MS,
    count: 28,
    tick: / 00:00:00$/,
    each: "six hours",
  },
];

const SHOWN = 5;
const TIMEOUT_MS = 3000;
/** `TIMEOUT_MS` does not interrupt the reading of a compressed file. */
const LONGEST_MS = 10_000;

type Period = PeriodCount & { readonly begin: number; readonly end: number };

/** Where periods begin, and where the last one ends. Those of a week keep to local midnight. */
export function findEdges({ periodMs, count }: Span, now: number): number[] {
  const offset = zoneOffset(now);
  const last = Math.floor((now + offset) / periodMs) * periodMs;
  return Array.from({ length: count + 1 }, (_, at) => {
    const local = last + (at + 1 - count) * periodMs;
    if (periodMs <= HOUR_MS) return local - offset;
    return readLocalTime(new Date(local).toISOString().slice(0, 19));
  });
}

/** In SVG units: the size of a chart without its labels. */
const [WIDTH, HEIGHT] = [840, 150] as const;

function shortNumber(count: number): string {
  return count.toLocaleString("en", { notation: "compact" });
}

function duration(ms: number | undefined): string {
  if (ms === undefined) return "-";
  if (ms === 0) return "0";
  const [value, unit] = ms >= 1000 ? [ms / 1000, "s"] : [ms, "ms"];
  return `${value.toLocaleString("en", { maximumSignificantDigits: 2 })} ${unit}`;
}

/** Marks from 0 to at least `most`, 1, 2 or 5 times a power of ten apart. */
export function roundMarks(most: number, leastStep: number): number[] {
  const wanted = Math.max(most / 4, leastStep);
  const power = 10 ** Math.floor(Math.log10(wanted));
  const step = ([1, 2, 5].find((one) => one * power >= wanted) ?? 10) * power;
  return Array.from({ length: Math.max(1, Math.ceil(most / step)) + 1 }, (_, at) => at * step);
}

function largest(periods: readonly Period[], read: (period: Period) => number): number {
  return periods.reduce((most, period) => Math.max(most, read(period)), 0);
}

/** `Tue 24` at local midnight in a chart of a week, otherwise a time such as `09:00`. */
function tickText(local: string, { name }: Span): string {
  if (name !== "week") return local.slice(11, 16);
  return new Date(`${local}Z`).toUTCString().slice(0, 7).replace(",", "");
}

function periodName({ begin }: Period, { name }: Span): string {
  return dateInWords(begin, 16, name === "week" ? 0 : 11);
}

function auditPath({ begin, end, denials }: Period): string {
  const [start, until] = [begin, end].map((one) => localTime(one).slice(0, 16).replace(" ", "T"));
  return pathOf("/audit", { start, until, outcome: denials > 0 ? "denied" : undefined });
}

/** A chart over periods, with round marks on both axes. */
function chart(
  label: string,
  span: Span,
  periods: readonly Period[],
  marks: readonly number[],
  written: (mark: number) => string,
  content: Html,
): Html {
  const most = marks.at(-1) ?? 1;
  const lines = marks.map((mark) => {
    const y = HEIGHT * (1 - mark / most);
    return html`<line x2="${WIDTH}" y1="${y}" y2="${y}"/><text class="scale" x="${WIDTH + 6}" y="${y}">${written(mark)}</text>`;
  });
  const ticks = periods.map(({ begin }, at) => {
    const local = localTime(begin);
    const x = (at * WIDTH) / periods.length;
    return (
      span.tick.test(local) &&
      html`<line x1="${x}" x2="${x}" y1="${HEIGHT}" y2="${HEIGHT + 5}"/><text x="${x}" y="${HEIGHT + 20}">${tickText(local, span)}</text>`
    );
  });
  return html`<div class="chart" tabindex="0" role="group" aria-label="${label}"><svg viewBox="-20 -10 ${WIDTH + 80} ${HEIGHT + 36}" role="none">
<g class="grid" aria-hidden="true">${lines}${ticks}</g>
${content}
</svg></div>`;
}

function queryChart(span: Span, periods: readonly Period[]): Html {
  const marks = roundMarks(
    largest(periods, ({ queries }) => queries),
    1,
  );
  const most = marks.at(-1) ?? 1;
  const column = WIDTH / periods.length;
  // Even a single query is visible.
  const heightOf = (count: number) => count && Math.max(3, Math.round((count / most) * HEIGHT));
  const bars = periods.map((period, at) => {
    const { queries, denials } = period;
    const [allowed, denied] = [heightOf(queries - denials), heightOf(denials)];
    const label = `${periodName(period, span)}: ${queries} queries, ${denials} denied`;
    const x = at * column;
    return (
      queries > 0 &&
      html`<a href="${auditPath(period)}" aria-label="${label}"><title>${label}</title><rect class="hit" x="${x}" width="${column}" height="${HEIGHT}"/><rect class="allowed" x="${x + 4}" y="${HEIGHT - allowed}" width="${column - 8}" height="${allowed}"/><rect class="denied" fill="url(#denied)" x="${x + 4}" y="${HEIGHT - allowed - denied}" width="${column - 8}" height="${denied}"/></a>`
    );
  });
  const pattern = html`<defs><pattern id="denied" width="6" height="6" patternUnits="userSpaceOnUse" patternTransform="rotate(45)"><rect width="6" height="6"/><line x1="0" y1="0" x2="0" y2="6"/></pattern></defs>`;
  const label = `Queries and denials per ${span.each}`;
  return chart(label, span, periods, marks, shortNumber, html`${pattern}${bars}`);
}

function latencyChart(span: Span, periods: readonly Period[]): Html {
  const marks = roundMarks(
    largest(periods, ({ p95 = 0 }) => p95),
    0.1,
  );
  const most = marks.at(-1) ?? 1;
  const column = WIDTH / periods.length;
  const line = (name: "p50" | "p95") => {
    const points = periods.map((period, at) => {
      const value = period[name];
      return value === undefined
        ? undefined
        : ([(at + 0.5) * column, HEIGHT * (1 - value / most)] as const);
    });
    const steps = points.map((point, at) => {
      if (point === undefined) return "";
      return `${points[at - 1] === undefined ? "M" : "L"}${point.join(" ")}`;
    });
    const dots = points.map(
      (point, at) =>
        point &&
        periods[at] &&
        html`<circle cx="${point[0]}" cy="${point[1]}" r="3"><title>${`${periodName(periods[at], span)}: ${name} ${duration(periods[at][name])}`}</title></circle>`,
    );
    return html`<g class="${name}"><path d="${steps.join("")}"/>${dots}</g>`;
  };
  const label = `Latency per ${span.each}: p50 and p95`;
  return chart(label, span, periods, marks, duration, html`${line("p95")}${line("p50")}`);
}

function periodTable(span: Span, periods: readonly Period[]): Html {
  const rows = periods.toReversed().map((period) => {
    const { begin, queries, denials, p50, p95 } = period;
    const time = timeElement(begin, localTime(begin).slice(0, 16));
    const link = html`<a href="${auditPath(period)}">${time}</a>`;
    return [queries === 0 ? time : link, queries, denials, duration(p50), duration(p95)];
  });
  const numbers = ["Queries", "Denials", "p50", "p95"].map((name) => [name, "number"] as const);
  const name = `Queries, denials and latency per ${span.each}`;
  return table(name, [[`Begin (${zoneInUse()})`, "moment"], ...numbers], rows);
}

type Kind = "user" | "table";
const heads = { user: "User", table: "Table" };

function auditLink(kind: Kind, { name }: NameCount, { since }: Span, outcome?: "denied"): Html {
  return html`<a href="${pathOf("/audit", { [kind]: name, outcome, since })}"><bdi>${name}</bdi></a>`;
}

function busiestTable(kind: Kind, span: Span, list: readonly NameCount[]): Html {
  return table(
    `Busiest ${kind}s`,
    [heads[kind], ["Queries", "number"], ["Denied", "number"]],
    list.map((one) => [auditLink(kind, one, span), one.queries, one.denials]),
    `No queries in the last ${span.name}.`,
  );
}

function deniedTable(visitor: Visitor, kind: Kind, span: Span, list: readonly NameCount[]): Html {
  return table(
    `Most denied ${kind}s`,
    [heads[kind], ["Denials", "number"], "Last reason"],
    list.map((one) => {
      const draft = one.lastDenial && draftGrant(visitor, one.lastDenial);
      const what = draft && ` of ${draft.role} on ${draftedPlace(draft)} to ${draft.user}`;
      return [
        auditLink(kind, one, span, "denied"),
        one.denials,
        html`<code>${denialReason(one.lastDenial ?? {})}</code>${draft && draftLink(draft, "Draft a grant", unseen(what))}`,
      ];
    }),
    `No denials in the last ${span.name}.`,
  );
}

function activity(
  c: ConsoleRequest,
  span: Span,
  edges: readonly number[],
  summary: AuditSummary | undefined,
): Html {
  const visitor = visitorOf(c);
  if (summary === undefined) {
    return empty("The audit cannot be read now. Reload the page in a moment.");
  }
  const { users, tables, isSampled, isPartial } = summary;
  const periods = summary.periods.map((period, at) => ({
    ...period,
    begin: edges[at] ?? 0,
    end: edges[at + 1] ?? 0,
  }));
  const notes = [
    isSampled && "Numbers are estimates because the audit is too large to read in full.",
    isPartial && `Part of the ${span.name} is missing because reading the audit took too long.`,
    !visitor.isAdministrator && "Only databases on which you may grant are included.",
    c.var.store && "Only this replica is included: each replica has its own audit.",
  ];
  return html`<div class="charts">
<div class="sheet">
<p class="legend"><span class="key allowed"></span> Allowed or waiting for approval <span class="key denied"></span> Denied ${hint(`Per ${span.each}. Select a bar to see its audit lines.`)}</p>
${queryChart(span, periods)}
</div>
<div class="sheet">
<p class="legend"><span class="key p50"></span> Latency p50 <span class="key p95"></span> Latency p95 ${hint("Allowed queries, until the last byte of the response.")}</p>
${latencyChart(span, periods)}
</div>
</div>
<details><summary>As a table</summary>${periodTable(span, periods)}</details>
${notes.map((note) => note && html`<p class="quiet">${note}</p>`)}
<div class="choices tops">
<section><h2>Busiest users</h2>${busiestTable("user", span, users.busiest)}</section>
<section><h2>Busiest tables</h2>${busiestTable("table", span, tables.busiest)}</section>
<section><h2>Most denied users</h2>${deniedTable(visitor, "user", span, users.denied)}</section>
<section><h2>Most denied tables</h2>${deniedTable(visitor, "table", span, tables.denied)}</section>
</div>`;
}

function periodSwitch(current: Span): Html {
  const links = spans.map(
    (span) =>
      html`<a href="/overview?period=${span.name}"${span === current && html` aria-current="true"`}>Last ${span.name}</a>`,
  );
  return html`<div class="switch" role="group" aria-label="Period">${links}</div>`;
}

const notCounted = html`<div class="sheet"><p>Queries are counted only if the audit has a file. Set one in <code>gateway.toml</code> and restart the gateway:</p>
<pre>[audit]
file = "audit.log"</pre></div>`;

/** Undefined if the audit has no file or cannot be read now. */
async function summarize(
  c: ConsoleRequest,
  edges: readonly number[],
): Promise<AuditSummary | undefined> {
  const { configuration, log } = c.var.gateway;
  const { file } = configuration.audit;
  if (file === undefined) return undefined;
  const limits = { edges, top: SHOWN, timeoutMs: TIMEOUT_MS };
  try {
    const question = { file, visible: visibleTo(visitorOf(c)), ...limits };
    return await askAudit(c, "summary", question, LONGEST_MS);
  } catch (error) {
    log.warn({ file, reason: errorMessage(error) }, "the audit cannot be counted");
    return undefined;
  }
}

/** Grants that expire within a week, on databases that the visitor manages, or the visitor's own. */
async function expiringGrants(visitor: Visitor, now: number): Promise<Grant[]> {
  const { snapshot, actor, maySee, isManager } = visitor;
  const found: Grant[] = [];
  const visit = (grants: Iterable<Grant>) => {
    for (const grant of grants) {
      const { database, expires = 0 } = grant;
      const isSoon = expires > now && expires <= now + WEEK_MS;
      if (isSoon && (!isManager || maySee(database))) found.push(grant);
    }
  };
  const own = [allEntries(snapshot, actor)];
  const all = snapshot.grants.values().map(entriesIn);
  await runCooperatively(visitEach(isManager ? all : own, visit));
  return found.sort((one, other) => (one.expires ?? 0) - (other.expires ?? 0));
}

/** All changes for an administrator, otherwise those to managed databases. */
async function recentChanges(c: ConsoleRequest, visitor: Visitor): Promise<AccessEvent[]> {
  const events = await c.var.history.events();
  if (visitor.isAdministrator) return events.slice(0, SHOWN);
  return events
    .flatMap((event): AccessEvent[] => {
      if (!("version" in event)) return [];
      const effects = event.effects.filter(({ place }) =>
        visitor.maySee(splitPlace(place).database),
      );
      return effects.length === 0 ? [] : [{ ...event, effects, records: [], hasOthers: false }];
    })
    .slice(0, SHOWN);
}

/** Issued tokens that expire soon: of all users for an administrator, otherwise own ones. */
async function expiringTokens(c: ConsoleRequest, visitor: Visitor): Promise<Html | undefined> {
  const tokens = await visibleTokens(c.var.gateway, visitor.actor);
  const soon = tokens.filter(expiresSoon).sort((one, other) => one.expiresAt - other.expiresAt);
  if (soon.length === 0) return undefined;
  const rows = soon
    .slice(0, SHOWN)
    .map((token) => [html`<bdi>${token.username}</bdi>`, tokenName(token), tokenExpiry(token)]);
  const more = soon.length - SHOWN;
  return html`<h2>Tokens that expire within 14 days</h2>
${table("Tokens that expire within 14 days", ["User", "Token", ["Expires", "moment"]], rows)}
${more > 0 && html`<p><a href="/sessions">${more} more</a></p>`}`;
}

function figure(label: string, value: string): Html {
  return html`<div class="sheet"><dt>${label}</dt><dd>${value}</dd></div>`;
}

export async function showOverview(c: ConsoleRequest): Promise<Response> {
  const visitor = visitorOf(c);
  const { isAdministrator, isManager } = visitor;
  const { gateway, history } = c.var;
  const now = Date.now();
  const span = spans.find(({ name }) => name === c.req.query("period")) ?? day;
  const edges = findEdges(span, now);
  const { waiting = [], others = [] } = await groupApprovals(c, visitor);
  const pending = [...waiting, ...others];
  const expiring = await expiringGrants(visitor, now);
  const condition = isAdministrator && (await conditionOf(c.var));
  const counted = isManager ? await summarize(c, edges) : undefined;
  const sum = (name: "queries" | "denials") =>
    counted ? shortNumber(counted.periods.reduce((all, period) => all + period[name], 0)) : "-";
  const pendingTable = table(
    "Pending approvals",
    ["Query", "Requested by", ["Expires", "moment"], "Decided by"],
    pending
      .slice(0, SHOWN)
      .map((one, at) => [
        approvalLink(one),
        html`<bdi>${one.username}</bdi>`,
        timeLeft(one.expires, now),
        at < waiting.length ? html`<strong>you</strong>` : "others",
      ]),
    "No pending approvals.",
  );
  const expiringTable = table(
    "Grants that expire this week",
    ["User", "Where", "Role", ["Expires", "moment"]],
    expiring
      .slice(0, SHOWN)
      .map((grant) => [
        isManager ? userLink(grant.holder) : html`<bdi>${holderText(grant.holder)}</bdi>`,
        html`<code>${describePlace(grant)}</code>`,
        roleBadge(grant.role),
        expiry(grant, now),
      ]),
    "No grants expire this week.",
  );
  const [morePending, moreExpiring] = [pending.length - SHOWN, expiring.length - SHOWN];
  const hasFile = gateway.configuration.audit.file !== undefined;
  return sendPage(c, {
    title: "Overview",
    section: "Overview",
    actions: isManager && hasFile && periodSwitch(span),
    content: html`${condition && summary(c.var, condition)}
<dl class="figures">${isManager && [figure(`Queries in the last ${span.name}`, sum("queries")), figure("Denied", sum("denials")), figure("Latency p50", duration(counted?.p50)), figure("Latency p95", duration(counted?.p95))]}${figure("Approvals for you to decide", shortNumber(waiting.length))}${figure("Grants that expire this week", shortNumber(expiring.length))}</dl>
${isManager && html`<h2>Queries in the last ${span.name}</h2>${hasFile ? activity(c, span, edges, counted) : notCounted}`}
<h2>Pending approvals</h2>
${pendingTable}${morePending > 0 && html`<p><a href="/approvals">${morePending} more</a></p>`}
<h2>Grants that expire this week</h2>
${expiringTable}${moreExpiring > 0 && html`<p class="quiet">${moreExpiring} more expire this week.</p>`}
${await expiringTokens(c, visitor)}
${isManager && html`<h2>Recent changes</h2>${versionList(await recentChanges(c, visitor), history.since)}`}`,
  });
}
