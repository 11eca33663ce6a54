import { setTimeout } from "node:timers/promises";
import { Worker } from "node:worker_threads";
import { mayManage } from "../../core/access/administration.ts";
import { groupHolder, groupOf, userHolder } from "../../core/access/grant.ts";
import { explainAccess } from "../../core/access/policy.ts";
import { EVERY_DATABASE, roleAllows, roles } from "../../core/access/roles.ts";
import { errorMessage } from "../../core/base/client-error.ts";
import { moments, readMoment } from "../../core/base/clock.ts";
import { type Html, html, type Part } from "../../core/base/html.ts";
import { siblingModule } from "../../core/base/ipc.ts";
import { Refusal } from "../../core/base/refusal.ts";
import { type CsvPage, csvHead, csvNote } from "../../core/observe/audit-csv.ts";
import {
  type AuditFilter,
  auditOutcomes,
  changeInWords,
  hasOutcome,
  type ReadLine,
} from "../../core/observe/audit-filter.ts";
import type {
  AuditAnswer,
  AuditQuestion,
  VisibleDatabases,
} from "../../core/observe/audit-search.ts";
import { placeName } from "../../core/query/names.ts";
import { definitions, isOperationName, permissionsOfAll } from "../../core/query/operations.ts";
import { type PermissionClass, permissionClasses } from "../../core/query/permissions.ts";
import type { AuditSummary, SummaryQuestion } from "./audit-summary.ts";
import { failureOf, mayGrantTo } from "./changes.ts";
import {
  type Failure,
  type Fields,
  field,
  hint,
  linkButton,
  mark,
  pathOf,
  table,
  unseen,
  type Visitor,
} from "./frame.ts";
import { dateInWords, localTime, readLocalTime, timeElement, zoneInUse } from "./moment.ts";
import { type ConsoleRequest, managerOf, sendPage, visitorOf } from "./visit.ts";

/** Denials that another grant can lift. */
const liftable: ReadonlySet<string | undefined> = new Set([
  "no_grant",
  "role_insufficient",
  "grant_expired",
  "batch_member_denied",
]);

/** The groups of a token that decided a line. Its other groups are unknown. */
function groupsNamed({ snapshot }: Visitor, { operations }: ReadLine): string[] {
  const known = [...snapshot.grants.keys()].flatMap((holder) => groupOf(holder) ?? []);
  const names = operations.flatMap(({ entry = [] }) => entry);
  return known.filter((group) => names.some((name) => name.includes(` (group ${group})`)));
}

/** The rights of an operation. Lines of presets and routes name the rights themselves. */
function permissionsIn(operation: string): readonly PermissionClass[] {
  if (isOperationName(operation)) return permissionsOfAll(definitions[operation]);
  return permissionClasses.filter((one) => ` ${operation} `.includes(` ${one} `));
}

/** The smallest grant that lifts the first denial in a line, if it would still be denied. */
export function draftGrant(visitor: Visitor, line: ReadLine) {
  const { user, decision, reason, via, client } = line;
  if (user === undefined || !mayGrantTo(visitor, userHolder(user))) return undefined;
  if (decision !== "deny" || !liftable.has(reason)) return undefined;
  const groups = groupsNamed(visitor, line);
  const context = {
    via: via === "mcp" ? "mcp" : "query",
    client,
    now: Date.now(),
    hasPreset: false,
  } as const;
  for (const { operation, database, tables } of line.operations) {
    const permissions = permissionsIn(operation);
    const role = roles.findLast((one) => permissions.every((right) => roleAllows(one, right)));
    if (permissions.length === 0 || role === undefined) continue;
    // Creating and dropping tables are rights on the database.
    const isOfTables = role === "ReadOnly" || role === "ReadWrite";
    const named = tables.filter((name) => name !== "*");
    for (const table of isOfTables && named.length > 0 ? named : [undefined]) {
      const place = { permissions, database, table };
      const now = explainAccess(visitor.snapshot, { username: user, groups }, place, context);
      const isLiftable = now.boundary === undefined && liftable.has(now.reason);
      if (!now.allowed && isLiftable) return { user, database, table, role, groups };
    }
  }
  return undefined;
}

type DraftedGrant = NonNullable<ReturnType<typeof draftGrant>>;

export function draftLink({ groups, ...draft }: DraftedGrant, ...words: Part[]): Html {
  const more = groups.map((group) => `&group=${encodeURIComponent(group)}`).join("");
  return hint(html`<a href="${pathOf("/access/entry", draft) + more}">${words}</a>`);
}

export function draftedPlace({ database, table }: DraftedGrant): string {
  return placeName(database, table);
}

const spans = [
  ["1h", "Last hour"],
  ["24h", "Last day"],
  ["7d", "Last 7 days"],
  ["30d", "Last 30 days"],
  ["", "All time"],
] as const;
const outcomes = [
  ["", "Any"],
  ["allowed", "Allowed"],
  ["denied", "Denied"],
  ["failed", "Failed"],
] as const;

function filterForm(fields: Fields): Html {
  const state = { fields };
  const text = (name: string, label: string) =>
    field(state, { name, label, more: html` maxlength="128"` });
  const select = (name: string, label: string, known: typeof spans | typeof outcomes) => {
    const value = fields.get(name) ?? "";
    const isKnown = known.some(([one]) => one === value);
    return field(state, { name, label, values: isKnown ? known : [...known, value] });
  };
  return html`<form method="get" action="/audit" class="tools sheet" role="search">
${text("user", "User")}
${text("table", "Table")}
${text("operation", "Operation")}
${text("group", "Group")}
${text("request", "Request id")}
${select("outcome", "Outcome", outcomes)}
${select("since", "Period", spans)}
${field(state, { name: "start", label: `From (${zoneInUse()})`, type: "datetime-local" })}
${field(state, { name: "until", label: `Until (${zoneInUse()})`, type: "datetime-local" })}
<button class="primary">Show</button>
</form>`;
}

function filterText(fields: Fields): Html {
  const since = fields.get("since") ?? "";
  const start = fields.get("start");
  const known = spans.find(([value]) => value === since)?.[1].toLowerCase() ?? since;
  const span = start ? html`from <strong>${start}</strong>` : known;
  const named = ["until", ...filters].map(
    (name) => fields.get(name) && html`, ${name} <strong><bdi>${fields.get(name)}</bdi></strong>`,
  );
  return html`${span}${named}`;
}

const noFile = html`<div class="sheet"><h2>The audit is written to the log</h2>
<p>The console can search the audit only if it has a file. Set one in <code>gateway.toml</code> and restart the gateway:</p>
<pre>[audit]
file = "audit.log"</pre>
<p>You can then search everything from that time on, including rotated files.</p></div>`;

export function writeTime(time: string): Part {
  const moment = Date.parse(time);
  return Number.isNaN(moment) ? time : timeElement(moment, localTime(moment));
}

function who({ user = "-", via, client, author, msg }: ReadLine): Html {
  const isDecision = msg === "approval_approved" || msg === "approval_denied";
  const isByAuthor = author !== undefined && (user === "-" || isDecision);
  const notes = [
    isDecision && `requested by ${user}`,
    msg === "approval_used" && author && `approved by ${author.name}`,
    via === "mcp" && "over MCP",
    client !== undefined && `client ${client}`,
    isByAuthor && author.kind,
  ].filter(Boolean);
  const name = isByAuthor ? author.name : user;
  return html`<bdi>${name}</bdi>${notes.length > 0 && hint(html`<bdi>${notes.join(", ")}</bdi>`)}`;
}

function operationText(one: ReadLine["operations"][number]): Html {
  const { operation, database, tables } = one;
  const place = tables.map((table) => placeName(database, table)).join(", ") || placeName(database);
  return html`<div><code>${`${operation} ${place}`.trim()}</code></div>`;
}

function changeText(change: ReadLine["changes"][number]): Html {
  return hint(html`<bdi>${changeInWords(change).join(" ")}</bdi>`);
}

function more(count: number): Part {
  return count > 0 && hint("and ", count, " more");
}

/** The rest of a line. Administrators, who also see sessions, see address and token. */
function details({ isAdministrator }: Visitor, line: ReadLine): Part {
  const { requestId, address, client, status, toolStatus, ms, operations, tokenId, bytes } = line;
  const response = [
    toolStatus ?? status,
    typeof bytes === "number" && `${bytes} bytes`,
    ms !== undefined && `${ms} ms`,
  ].filter((one) => one !== undefined && one !== false);
  const shapes = operations.flatMap(({ shape }) => shape ?? []);
  const texts: readonly (readonly [label: string, value: Part])[] = [
    ["Request", requestId && html`<code>${requestId}</code>`],
    ["Address", isAdministrator && address && html`<code>${address}</code>`],
    ["Token", isAdministrator && typeof tokenId === "string" && html`<code>${tokenId}</code>`],
    ["Client", client && html`<bdi>${client}</bdi>`],
    ["Response", response.join(", ")],
    [
      "Shape",
      shapes.length > 0 &&
        html`<ul class="plain">${shapes.map((shape) => html`<li>${shape}</li>`)}</ul>`,
    ],
  ];
  const known = texts.filter(([, value]) => value);
  if (known.length === 0) return undefined;
  const what = unseen(" of ", requestId ?? line.time);
  return html`<details><summary>Details${what}</summary><dl>${known.map(([label, value]) => html`<dt>${label}</dt><dd>${value}</dd>`)}</dl></details>`;
}

function what(visitor: Visitor, line: ReadLine): Html {
  const { operations, operationCount, changes, method, path, msg } = line;
  const head = path === undefined ? msg.replaceAll("_", " ") : `${method ?? ""} ${path}`;
  const listed = operations.slice(0, SHOWN).map(operationText);
  return html`${listed.length > 0 ? listed : html`<bdi>${head}</bdi>`}${more(operationCount - SHOWN)}${changes.slice(0, SHOWN).map(changeText)}${more(changes.length - SHOWN)}${details(visitor, line)}`;
}

/** Without a code, the database denied a request that the gateway had allowed. */
export function denialReason({ reason, decision }: Partial<ReadLine>): string {
  return reason ?? (decision === "allow" ? "denied by the database" : "denied");
}

function outcomeMark(line: ReadLine): Part {
  const { level, decision, outcome, reason, msg } = line;
  if (reason === "approval_required") return html`<span class="state">waiting</span>`;
  if (level === "error" || hasOutcome(line, "failed")) return mark(false, "failed");
  if (decision === "deny" || level === "warn") return mark(false, "denied");
  if (hasOutcome(line, "denied")) return mark(false, denialReason(line));
  if (decision !== undefined || outcome !== undefined) return mark(true, "allowed");
  return /^approval_(.+)$/.exec(msg)?.[1] ?? "done";
}

function outcomeText(line: ReadLine, draft: DraftedGrant | undefined): Html {
  const { reason, operations, approval } = line;
  const code = reason ?? (line.outcome === "allowed" ? undefined : line.outcome);
  const entries = [...new Set(operations.flatMap(({ entry }) => entry ?? []))].join(", ");
  const boundary = operations.find((one) => one.boundary !== undefined)?.boundary;
  const notes = [
    code !== undefined && html` <bdi>${code}</bdi>`,
    entries !== "" && hint("by the entry for ", html`<code>${entries}</code>`),
    boundary !== undefined && hint("by the boundary ", html`<code>${boundary}</code>`),
    approval !== undefined && hint("approval ", html`<code>${approval.slice(0, 8)}</code>`),
    draft && draftLink(draft, `Draft a grant: ${draft.role} on ${draftedPlace(draft)}`),
  ];
  return html`${outcomeMark(line)}${notes}`;
}

/** Lines per page, and operations and changes per line. */
const PAGE = 50;
const SHOWN = 3;
const TIMEOUT_MS = 5000;
/** A search is aborted after this time, since compressed files are read whole. */
const LONGEST_MS = 60_000;

function readMomentOf(name: string, text: string | undefined): number | undefined {
  if (text === undefined) return undefined;
  // Browsers send local times without a zone, and seconds only if there are some.
  const isLocal = /^\d{4}-\d\d-\d\dT\d\d:\d\d(?::\d\d(?:\.\d{1,3})?)?$/.test(text);
  const moment = isLocal ? readLocalTime(text) || undefined : readMoment(text);
  if (moment !== undefined) return moment;
  throw new Refusal("bad_request", { message: `${name} may be such as ${moments}` });
}

/** The databases whose lines a visitor may see; undefined for administrators, who see all. */
export function visibleTo(visitor: Visitor): VisibleDatabases | undefined {
  const { snapshot, maySee, isAdministrator } = visitor;
  if (isAdministrator) return undefined;
  const known = [...snapshot.databases.values(), EVERY_DATABASE];
  return {
    named: new Map(known.map((name) => [name, maySee(name)])),
    others: maySee(EVERY_DATABASE),
  };
}

/** The group and its members, if the visitor may see them. */
function groupIn(visitor: Visitor, name: string | undefined): AuditFilter["group"] {
  if (name === undefined) return undefined;
  const isSeen = mayManage(visitor, groupHolder(name));
  const { members = [] } = (isSeen && visitor.snapshot.groups.get(name)) || {};
  return { name, members };
}

type Place = AuditQuestion["from"];

/** @throws Refusal if a field is wrong, or the visitor may no longer see the audit */
function readQuestion(c: ConsoleRequest, file: string, fields: Fields, from: Place): AuditQuestion {
  const visitor = managerOf(c);
  const at = (name: string) => fields.get(name) || undefined;
  const filter = {
    user: at("user"),
    table: at("table"),
    operation: at("operation"),
    requestId: at("request"),
    outcome: auditOutcomes.find((one) => one === at("outcome")),
    group: groupIn(visitor, at("group")),
    since: readMomentOf("From", at("start") ?? at("since")) ?? 0,
    until: readMomentOf("Until", at("until")) ?? Number.POSITIVE_INFINITY,
  };
  if (filter.since > filter.until) {
    throw new Refusal("bad_request", {
      message: "The period ends before it begins: set From, or a longer Period",
    });
  }
  return { file, filter, visible: visibleTo(visitor), from, limit: PAGE, timeoutMs: TIMEOUT_MS };
}

async function search<Name extends "search" | "csv">(
  c: ConsoleRequest,
  name: Name,
  question: AuditQuestion,
  most?: number,
  longestMs = LONGEST_MS,
): Promise<Answers[Name]> {
  try {
    return await askAudit(c, name, question, longestMs, most);
  } catch (error) {
    if (error instanceof Refusal) throw error;
    c.var.gateway.log.warn(
      { file: question.file, reason: errorMessage(error) },
      "the audit cannot be read",
    );
    throw new Refusal("busy", { message: "The audit files cannot be read now; try again later" });
  }
}

const FIND_MS = 2000;
const LONGEST_FIND_MS = 4000;

/** The newest visible line of a request. Undefined if the audit has no file. @throws Refusal */
export async function findRequest(c: ConsoleRequest, id: string): Promise<AuditAnswer | undefined> {
  const { file } = c.var.gateway.configuration.audit;
  if (file === undefined) return undefined;
  const question = readQuestion(c, file, new Map([["request", id]]), undefined);
  const first = { ...question, limit: 1, timeoutMs: FIND_MS };
  return search(c, "search", first, undefined, LONGEST_FIND_MS);
}

const filters = ["user", "table", "operation", "group", "request", "outcome"];
const times = ["since", "start", "until"];

/** The fields of the form, from the query of a page. */
function readFilter(c: ConsoleRequest): Fields {
  const names = [...filters, ...times];
  const fields = new Map(names.map((name) => [name, (c.req.query(name) ?? "").trim()]));
  if (c.req.query("since") === undefined) fields.set("since", "24h");
  return fields;
}

/** Lines of an export, and of each of its searches. */
const EXPORTED = 50_000;
const EXPORTED_AT_ONCE = 5000;
const EXPORT_MS = 5 * 60_000;
const RETRY_MS = 200;

async function* exportLines(c: ConsoleRequest, file: string, fields: Fields) {
  const deadline = performance.now() + EXPORT_MS;
  let page: CsvPage | undefined;
  let lines = 0;
  try {
    while (true) {
      const limit = Math.min(EXPORTED - lines, EXPORTED_AT_ONCE);
      // Judged again each time: an export may take minutes.
      const question = { ...readQuestion(c, file, fields, page?.next), limit };
      page = await searchWhenFree(c, question, deadline);
      lines += page.count;
      yield page.csv;
      const { next, isLost, reached } = page;
      if (isLost) yield csvNote("Incomplete: the audit files have been rotated. Export again.");
      if (isLost || next === undefined) return;
      const isLate = performance.now() > deadline;
      if (!isLate && lines < EXPORTED) continue;
      const limits = isLate ? "5 minutes" : `${EXPORTED} lines`;
      yield csvNote(
        `Incomplete: cut after ${limits}. Older lines, before about ${reached}, are missing. Choose a shorter period.`,
      );
      return;
    }
  } catch (error) {
    if (page === undefined || !(error instanceof Refusal)) throw error;
    yield csvNote(`Incomplete: ${error.message}. Older lines are missing.`);
  } finally {
    if (page !== undefined) recordExport(c, fields, lines);
  }
}

function recordExport(c: ConsoleRequest, fields: Fields, lines: number): void {
  const { gateway, listener } = c.var;
  const { address } = listener.originOf(c.env.incoming);
  const filter = Object.fromEntries([...fields].filter(([, value]) => value !== ""));
  const user = visitorOf(c).actor.username;
  gateway.audit.event("console_export", { user, address, filter, lines }, "info");
}

/** Leaves a search free for pages, and waits while there are others. */
async function searchWhenFree(c: ConsoleRequest, question: AuditQuestion, deadline: number) {
  for (;;) {
    try {
      return await search(c, "csv", question, MOST_SEARCHES - 1);
    } catch (error) {
      const isBusy = error instanceof Refusal && error.retryAfter !== undefined;
      if (!isBusy || performance.now() > deadline) throw error;
      await setTimeout(RETRY_MS, undefined, { signal: c.req.raw.signal });
    }
  }
}

/** Sends the lines of the page's filter as CSV, newest first. */
export async function exportAudit(c: ConsoleRequest): Promise<Response> {
  const { file } = c.var.gateway.configuration.audit;
  if (file === undefined) throw new Refusal("not_found");
  const lines = exportLines(c, file, readFilter(c));
  // Before the head is sent, a failure still gets a page.
  const first = await lines.next();
  async function* bytes() {
    yield Buffer.from(csvHead + (first.value ?? ""));
    for await (const text of lines) yield Buffer.from(text);
  }
  const name = `audit-${new Date().toISOString().slice(0, 10)}.csv`;
  return c.body(ReadableStream.from(bytes()), 200, {
    "Content-Type": "text/csv; charset=utf-8; header=present",
    "Content-Disposition": `attachment; filename="${name}"`,
  });
}

export async function showAudit(c: ConsoleRequest): Promise<Response> {
  const visitor = managerOf(c);
  const { file } = c.var.gateway.configuration.audit;
  const fields = readFilter(c);
  const [, inode, offset] = /^(\d{1,20})-(\d{1,15})$/.exec(c.req.query("from") ?? "") ?? [];
  const from = inode === undefined ? undefined : { inode, offset: Number(offset) };
  let failure: Failure | undefined;
  let answer: AuditAnswer | undefined;
  try {
    if (file !== undefined) {
      answer = await search(c, "search", readQuestion(c, file, fields, from));
    }
  } catch (error) {
    failure = failureOf(c, error);
  }
  const { lines = [], isLost, next, reached } = answer ?? {};
  const again = Object.fromEntries(fields);
  const isLater = c.req.query("from") !== undefined;
  const rows = lines.map((line) => {
    const { affected, rows: read } = line;
    return [
      writeTime(line.time),
      who(line),
      what(visitor, line),
      outcomeText(line, draftGrant(visitor, line)),
      affected === undefined ? read !== undefined && `${read} read` : `${affected} changed`,
    ];
  });
  const columns = [
    [`Time (${zoneInUse()})`, "moment"],
    "Who",
    "What",
    "Outcome",
    ["Rows", "number"],
  ] as const;
  const none = isLost
    ? html`The audit files have been rotated. <a href="${pathOf("/audit", again)}">Start again</a>.`
    : html`No ${isLater && "older "}lines found for: ${filterText(fields)}. <a href="/audit?since=">Show all lines</a>, or <a href="${pathOf("/audit", { ...again, since: "", start: "", until: "" })}">search all time</a>.`;
  const older =
    next &&
    html`<p class="actions">${linkButton("Search further back", "/audit", { ...again, from: `${next.inode}-${next.offset}` })}</p>
${reached !== undefined && html`<p class="quiet">Searched back to about ${dateInWords(Date.parse(reached), 19)}.</p>`}`;
  const found = html`${table("Audit", columns, rows, none)}${older}`;
  const isExported = file !== undefined && failure === undefined && lines.length > 0;
  return sendPage(c, {
    title: "Audit",
    section: "Audit",
    actions: isExported && linkButton("Export as CSV", "/audit.csv", again),
    failure,
    content: html`${file === undefined ? noFile : html`${filterForm(fields)}${!failure && found}`}
${file !== undefined && !visitor.isAdministrator && html`<p class="quiet">Only queries and grants on databases on which you may grant are shown.</p>`}`,
  });
}

const MOST_SEARCHES = 2;
const MOST_MEMORY_MB = 128;

let searches = 0;

interface Answers {
  readonly search: AuditAnswer;
  readonly csv: CsvPage;
  readonly summary: AuditSummary;
}

/** Reads the audit files in a thread. @throws Refusal `busy`, or the file system's error */
export async function askAudit<Name extends keyof Answers>(
  { req }: { readonly req: { readonly raw: Request } },
  program: Name,
  question: AuditQuestion | SummaryQuestion,
  timeoutMs: number,
  most = MOST_SEARCHES,
): Promise<Answers[Name]> {
  const signal = AbortSignal.any([req.raw.signal, AbortSignal.timeout(timeoutMs)]);
  // Not to be retried: the same search would take as long again.
  const message = "The search of the audit took too long: choose a shorter period";
  const stopped = new Refusal("busy", { message });
  if (signal.aborted) throw stopped;
  if (searches >= most) throw new Refusal("busy", { retryAfter: 2 });
  searches += 1;
  const worker = new Worker(siblingModule(import.meta.url, "audit-program"), {
    workerData: { program, question },
    resourceLimits: { maxOldGenerationSizeMb: MOST_MEMORY_MB },
  });
  signal.addEventListener("abort", () => void worker.terminate());
  try {
    return await new Promise<Answers[Name]>((resolve, reject) => {
      worker
        .once("message", resolve)
        .once("error", reject)
        .once("exit", () => reject(stopped));
    });
  } finally {
    searches -= 1;
    void worker.terminate();
  }
}
