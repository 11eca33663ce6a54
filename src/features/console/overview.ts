import { entriesIn } from "../../core/access/entries.ts";
import { type Grant, placeOf } from "../../core/access/grant.ts";
import { allEntries } from "../../core/access/groups.ts";
import { holderText } from "../../core/access/holder.ts";
import { messageOf } from "../../core/base/client-error.ts";
import { runCooperatively, visitEach } from "../../core/base/cooperative-scheduling.ts";
import { type Html, html } from "../../core/base/html.ts";
import { visibleTokens } from "../../core/http/administration.ts";
import { expiresSoon } from "../../core/identity/token-file.ts";
import type { AuditSummary, DeniedName, HourCount } from "../../core/observe/audit-summary.ts";
import { splitPlace } from "../../core/query/names.ts";
import { approvalLink, groupApprovals, timeLeft } from "./approvals.ts";
import { askAudit, draftedPlace, draftGrant, draftLink, visibleTo } from "./audit.ts";
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
import { conditionOf, summary, versionList } from "./state.ts";
import { tokenExpiry, tokenName } from "./tokens.ts";
import { type ConsoleRequest, sendPage, visitorOf } from "./visit.ts";

const HOUR_MS = 3_600_000;
const HOURS = 24;
const WEEK_MS = 7 * 24 * HOUR_MS;
const SHOWN = 5;
const TIMEOUT_MS = 3000;
/** `TIMEOUT_MS` does not interrupt the reading of a compressed file. */
const LONGEST_MS = 10_000;

type Hour = HourCount & { readonly begin: number };

/** In SVG units: the width of an hour, and the height of the bars. */
const [COLUMN, HEIGHT] = [28, 150] as const;

function timeOf(moment: number): string {
  return new Date(moment).toISOString().slice(0, 16);
}

function shortNumber(count: number): string {
  return count.toLocaleString("en", { notation: "compact" });
}

function auditPath({ begin, denials }: Hour): string {
  const [since, until] = [timeOf(begin), timeOf(begin + HOUR_MS)];
  return pathOf("/audit", { since, until, outcome: denials > 0 ? "denied" : undefined });
}

function chart(hours: readonly Hour[]): Html {
  // Even, so that half of it is a whole number.
  const most = 2 * Math.ceil(hours.reduce((most, { queries }) => Math.max(most, queries), 4) / 2);
  // Even a single query is visible.
  const heightOf = (count: number) => count && Math.max(3, Math.round((count / most) * HEIGHT));
  const width = COLUMN * HOURS;
  const bars = hours.map((hour, at) => {
    const { queries, denials, begin } = hour;
    const time = timeOf(begin).slice(11);
    const [allowed, denied] = [heightOf(queries - denials), heightOf(denials)];
    const label = `${time} UTC: ${queries} queries, ${denials} denied`;
    const x = at * COLUMN;
    const bar = html`<a href="${auditPath(hour)}" aria-label="${label}"><title>${label}</title><rect class="hit" x="${x}" width="${COLUMN}" height="${HEIGHT}"/><rect class="allowed" x="${x + 4}" y="${HEIGHT - allowed}" width="20" height="${allowed}"/><rect class="denied" fill="url(#denied)" x="${x + 4}" y="${HEIGHT - allowed - denied}" width="20" height="${denied}"/></a>`;
    return html`${queries > 0 && bar}${at % 3 === 0 && html`<text aria-hidden="true" x="${x + COLUMN / 2}" y="${HEIGHT + 18}">${time}</text>`}`;
  });
  const lines = [0, 0.5, 1].map((part) => {
    const y = HEIGHT * (1 - part);
    return html`<line x2="${width}" y1="${y}" y2="${y}"/><text class="scale" x="${width + 6}" y="${y}">${shortNumber(most * part)}</text>`;
  });
  return html`<div class="chart"><svg viewBox="0 -10 ${width + 40} ${HEIGHT + 36}" role="group" aria-label="Queries and denials per hour">
<defs><pattern id="denied" width="6" height="6" patternUnits="userSpaceOnUse" patternTransform="rotate(45)"><rect width="6" height="6"/><line x1="0" y1="0" x2="0" y2="6"/></pattern></defs>
<g class="grid" aria-hidden="true">${lines}</g>
${bars}
</svg></div>`;
}

function hourTable(hours: readonly Hour[]): Html {
  const rows = hours.toReversed().map((hour) => {
    const time = timeOf(hour.begin).replace("T", " ");
    const link = html`<a href="${auditPath(hour)}">${time}</a>`;
    return [hour.queries === 0 ? time : link, hour.queries, hour.denials];
  });
  const numbers = ["Queries", "Denials"].map((name) => [name, "number"] as const);
  return table("Queries and denials per hour", [["Hour (UTC)", "moment"], ...numbers], rows);
}

function deniedTable(visitor: Visitor, column: "user" | "table", list: readonly DeniedName[]) {
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
    "No denials in the last day.",
  );
}

function activity(visitor: Visitor, since: number, summary: AuditSummary | undefined): Html {
  if (summary === undefined) {
    return empty("The audit cannot be read now. Reload the page in a moment.");
  }
  const { users, tables, isSampled, isPartial } = summary;
  const hours = summary.hours.map((hour, at) => ({ ...hour, begin: since + at * HOUR_MS }));
  const notes = [
    isSampled && "Numbers are estimates because the audit is too large to read in full.",
    isPartial && "Part of the day is missing because reading the audit took too long.",
    !visitor.isAdministrator && "Only databases on which you may grant are included.",
  ];
  return html`<div class="sheet">
<p class="legend"><span class="key allowed"></span> Allowed or waiting for approval <span class="key denied"></span> Denied ${hint("Per hour, UTC. Select a bar to see its audit lines.")}</p>
${chart(hours)}
<details><summary>As a table</summary>${hourTable(hours)}</details>
</div>
${notes.map((note) => note && html`<p class="quiet">${note}</p>`)}
<div class="choices">
<section><h2>Most denied users</h2>${deniedTable(visitor, "user", users)}</section>
<section><h2>Most denied tables</h2>${deniedTable(visitor, "table", tables)}</section>
</div>`;
}

const notCounted = html`<div class="sheet"><p>Queries are counted only if the audit has a file. Set one in <code>gateway.toml</code> and restart the gateway:</p>
<pre>[audit]
file = "audit.log"</pre></div>`;

/** Undefined if the audit has no file or cannot be read now. */
async function summarize(c: ConsoleRequest, since: number): Promise<AuditSummary | undefined> {
  const { configuration, log } = c.var.gateway;
  const { file } = configuration.audit;
  if (file === undefined) return undefined;
  const limits = { since, hours: HOURS, top: SHOWN, timeoutMs: TIMEOUT_MS };
  try {
    const question = { file, visible: visibleTo(visitorOf(c)), ...limits };
    return await askAudit(c, "summary", question, LONGEST_MS);
  } catch (error) {
    log.warn({ file, reason: messageOf(error) }, "the audit cannot be counted");
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

function figure(label: string, count: number | undefined): Html {
  return html`<div class="sheet"><dt>${label}</dt><dd>${count === undefined ? "-" : shortNumber(count)}</dd></div>`;
}

export async function showOverview(c: ConsoleRequest): Promise<Response> {
  const visitor = visitorOf(c);
  const { isAdministrator, isManager } = visitor;
  const { gateway, history } = c.var;
  const now = Date.now();
  const since = Math.floor(now / HOUR_MS) * HOUR_MS - (HOURS - 1) * HOUR_MS;
  const { waiting = [], others = [] } = await groupApprovals(c, visitor);
  const pending = [...waiting, ...others];
  const expiring = await expiringGrants(visitor, now);
  const condition = isAdministrator && (await conditionOf(c.var));
  const counted = isManager ? await summarize(c, since) : undefined;
  const sum = (name: keyof HourCount) =>
    counted?.hours.reduce((total, hour) => total + hour[name], 0);
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
        html`<code>${placeOf(grant)}</code>`,
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
    content: html`${condition && summary(c.var, condition)}
<dl class="figures">${isManager && [figure("Queries in the last day", sum("queries")), figure("Denied", sum("denials"))]}${figure("Approvals for you to decide", waiting.length)}${figure("Grants that expire this week", expiring.length)}</dl>
${isManager && html`<h2>Queries in the last day</h2>${hasFile ? activity(visitor, since, counted) : notCounted}`}
<h2>Pending approvals</h2>
${pendingTable}${morePending > 0 && html`<p><a href="/approvals">${morePending} more</a></p>`}
<h2>Grants that expire this week</h2>
${expiringTable}${moreExpiring > 0 && html`<p class="quiet">${moreExpiring} more expire this week.</p>`}
${await expiringTokens(c, visitor)}
${isManager && html`<h2>Recent changes</h2>${versionList(await recentChanges(c, visitor), history.since)}`}`,
  });
}
