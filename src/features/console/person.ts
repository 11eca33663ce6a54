/** Parts of a user's or group's page: the account, recent denials, and a test without a query. */

import { mayManage, maySeeDecision, visibleBoundary } from "../../core/access/administration.ts";
import { answerQuestion } from "../../core/access/effective.ts";
import { commonLimitsInWords, viewAttributes } from "../../core/access/entry-view.ts";
import { type Holder, holderName, holderText, userOf } from "../../core/access/grant.ts";
import { callerFor } from "../../core/access/groups.ts";
import { questionSetting } from "../../core/access/policy.ts";
import { EVERY_DATABASE, isDatabaseOrEvery, isExternalGroup } from "../../core/access/roles.ts";
import { errorMessage } from "../../core/base/client-error.ts";
import { type Html, html, type Part } from "../../core/base/html.ts";
import type { AuditAnswer } from "../../core/observe/audit-search.ts";
import { placeName, splitPlace } from "../../core/query/names.ts";
import {
  definitions,
  isOperationName,
  operationNames,
  permissionsOfAll,
} from "../../core/query/operations.ts";
import type { PermissionClass } from "../../core/query/permissions.ts";
import {
  askAudit,
  denialReason,
  draftedPlace,
  draftGrant,
  draftLink,
  visibleTo,
  writeTime,
} from "./audit.ts";
import {
  empty,
  field,
  hidden,
  mark,
  parseList,
  pathOf,
  plainWords,
  required,
  table,
} from "./frame.ts";
import { dateInWords, formatDate, zoneInUse } from "./moment.ts";
import { type ConsoleRequest, visitorOf } from "./visit.ts";

/** Email, and for administrators attributes and the last use. Undefined if nothing is known. */
export async function accountFacts(c: ConsoleRequest, username: string): Promise<Html | undefined> {
  const { snapshot, isAdministrator } = visitorOf(c);
  const user = snapshot.users.get(username);
  const attributes = Object.entries(viewAttributes(user?.attributes));
  const { login, use } = (await c.var.gateway.activity.read()).of(username);
  const timeOf = (seconds: number) => (seconds === 0 ? "never" : formatDate(seconds));
  const facts: readonly (readonly [label: string, value: Part])[] = [
    ["Email", user?.email !== undefined && html`<bdi>${user.email}</bdi>`],
    [
      "Attributes",
      isAdministrator &&
        attributes.length > 0 &&
        html`<ul class="plain">${attributes.map(([name, value]) => html`<li><code>${name} = ${JSON.stringify(value)}</code></li>`)}</ul>`,
    ],
    ["Last sign-in", isAdministrator && timeOf(login)],
    ["Last seen", isAdministrator && timeOf(Math.max(login, use))],
  ];
  const known = facts.filter(([, value]) => value);
  if (known.length === 0) return undefined;
  return html`<dl class="sheet">${known.map(([label, value]) => html`<dt>${label}</dt><dd>${value}</dd>`)}</dl>`;
}

const DAYS = 30;
const DENIALS = 5;
const SEARCH_MS = 1000;
const LONGEST_SEARCH_MS = 3000;

type Searched = Pick<AuditAnswer, "lines" | "next" | "reached">;

/** Says how far an unfinished search got. Undefined if nothing is left to search. */
export function unfinishedSearch({ lines, next, reached }: Searched): string | undefined {
  if (next === undefined || lines.length >= DENIALS) return undefined;
  const more = lines.length === 0 ? "" : " more";
  const since = reached === undefined ? "" : ` since about ${dateInWords(Date.parse(reached))}`;
  return `No${more} denials found${since}. The audit is too large to search further here.`;
}

async function denialTable(c: ConsoleRequest, file: string, username: string): Promise<Html> {
  const visitor = visitorOf(c);
  const since = Date.now() - DAYS * 86_400_000;
  const until = Number.POSITIVE_INFINITY;
  const filter = { user: username, outcome: "denied", since, until } as const;
  const limits = { from: undefined, limit: DENIALS, timeoutMs: SEARCH_MS };
  const question = { file, filter, visible: visibleTo(visitor), ...limits };
  const answer = await askAudit(c, "search", question, LONGEST_SEARCH_MS);
  const unfinished = unfinishedSearch(answer);
  const rows = answer.lines.map((line) => {
    const [first] = line.operations;
    const what = first
      ? [first.operation, placeName(first.database, first.tables[0])].join(" ")
      : `${line.method ?? ""} ${line.path ?? line.msg}`;
    const draft = draftGrant(visitor, line);
    return [
      writeTime(line.time),
      html`<code>${what}</code>`,
      html`<code>${denialReason(line)}</code>${draft && draftLink(draft, `Draft a grant: ${draft.role} on ${draftedPlace(draft)}`)}`,
    ];
  });
  const all = pathOf("/audit", { user: username, outcome: "denied", since: "" });
  return html`${table(
    `Recent denials of ${username}`,
    [[`Time (${zoneInUse()})`, "moment"], "What", "Reason"],
    rows,
    unfinished ?? `No denials in the last ${DAYS} days.`,
  )}
${rows.length > 0 && unfinished && html`<p class="quiet">${unfinished}</p>`}
${(rows.length > 0 || unfinished) && html`<p><a href="${all}">All denials of <bdi>${username}</bdi></a></p>`}`;
}

/** The last denials of a user, as far as the visitor may see the audit. */
export async function recentDenials(c: ConsoleRequest, username: string): Promise<Html> {
  const { configuration, log } = c.var.gateway;
  const { file } = configuration.audit;
  let content = empty(
    html`Denials are listed here if the audit has a file: set <code>[audit] file</code>.`,
  );
  try {
    if (file !== undefined) content = await denialTable(c, file, username);
  } catch (error) {
    log.warn({ file, reason: errorMessage(error) }, "the denials of a user cannot be read");
    content = empty("The audit cannot be read now. Reload the page in a moment.");
  }
  return html`<h2>Recent denials</h2>${content}`;
}

/** The rights of an operation of the grammar, or of one that the configuration adds. */
function permissionsFor(c: ConsoleRequest, operation: string): readonly PermissionClass[] {
  if (isOperationName(operation)) return permissionsOfAll(definitions[operation]);
  return [c.var.gateway.configuration.query.operations[operation] ?? []].flat();
}

function testResult(c: ConsoleRequest, holder: Holder): Html | undefined {
  const visitor = visitorOf(c);
  const { snapshot, maySee } = visitor;
  const at = (name: string) => (c.req.query(name) ?? "").trim();
  const [operation, place] = [at("operation"), at("place")];
  const permissions = permissionsFor(c, operation);
  if (place === "" || permissions.length === 0) return undefined;
  const { database, table: name } = splitPlace(place);
  if (!isDatabaseOrEvery(database) || database === EVERY_DATABASE || name === "") {
    return html`<p class="wrong">Enter a database or a table, such as main or main.tickets.</p>`;
  }
  if (!maySee(database)) {
    return html`<p class="wrong">You may test only databases on which you may grant.</p>`;
  }
  const groups = parseList(c.req.query("groups")).filter(isExternalGroup);
  const caller = { ...callerFor(holder), groups };
  const about = html`<bdi>${holderName(holder)}</bdi>, ${operation} on <code>${placeName(database, name)}</code>`;
  if (!maySeeDecision(visitor, caller, { database, table: name })) {
    return html`<p>${about}: an entry that you may not see decides here. Ask an administrator.</p>`;
  }
  const question = { permissions, database, table: name };
  const via = at("via") === "mcp" ? "mcp" : "query";
  const context = { via, ...questionSetting(c.var.gateway.configuration) } as const;
  const { allowed, explanation, decided } = answerQuestion(snapshot, caller, question, context);
  const approvals = (decided.approvals ?? []).flatMap(({ permissions, approvers, boundary }) => {
    const isNamed = boundary === undefined || approvers?.every((one) => mayManage(visitor, one));
    return commonLimitsInWords({
      requireApproval: permissions,
      ...(approvers && isNamed && { approvers }),
    });
  });
  const { boundary } = decided;
  const why =
    boundary === undefined || visibleBoundary(visitor, boundary) === boundary
      ? explanation
      : "a boundary denies it";
  return html`<p>${mark(allowed, allowed ? "Allowed" : "Denied")}: ${about}: ${plainWords(`${why}.`)}</p>
${allowed && approvals.length > 0 && html`<p>${approvals.join("; ")}.</p>`}`;
}

/** A form that asks for the decision on an operation, as `gatehouse access check` does. */
export function testSection(c: ConsoleRequest, holder: Holder): Html {
  const names = ["operation", "place", "via", "groups"];
  const state = { fields: new Map(names.map((name) => [name, c.req.query(name) ?? ""])) };
  const groups = state.fields.get("groups");
  const { operations } = c.var.gateway.configuration.query;
  return html`<h2 id="test">Test as this ${userOf(holder) === undefined ? "group" : "user"}</h2>
<form method="get" action="/access/user#test" class="tools">${hidden("user", holderText(holder))}${userOf(holder) !== undefined && groups ? hidden("groups", groups) : ""}
${field(state, { name: "operation", label: "Operation", values: [...operationNames, ...Object.keys(operations)] })}
${field(state, { name: "place", label: "Database or table", more: html`${required} maxlength="127" placeholder="main.tickets"` })}
${field(state, { name: "via", label: "Interface", values: ["query", "mcp"] })}
<button>Test</button>
</form>
${testResult(c, holder) ?? html`<p class="quiet">Shows the current decision. No query is sent to a database.</p>`}`;
}
