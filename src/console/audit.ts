import { Worker } from "node:worker_threads";
import { manageableBy } from "../access/administration.ts";
import { decidePlace } from "../access/policy.ts";
import { EVERY_DATABASE, roleAllows, roles } from "../access/roles.ts";
import type { Snapshot } from "../access/snapshot.ts";
import { moments, readMoment } from "../clock.ts";
import { siblingModule } from "../ipc/child-program.ts";
import { type AuditFilter, auditOutcomes, type ReadLine } from "../observe/audit-filter.ts";
import type {
  AuditAnswer,
  AuditPosition,
  AuditQuestion,
  ShownDatabases,
} from "../observe/audit-search.ts";
import type { SummaryQuestion } from "../observe/audit-summary.ts";
import { type Html, html, nothing } from "../pages/html.ts";
import { definitions, isOperationName } from "../query/operations.ts";
import type { PermissionClass } from "../query/query.ts";
import { Refusal } from "../refusal.ts";
import { type Failure, failureOf, mayGrantTo } from "./changes.ts";
import { type ConsolePage, type Fields, failureNote, heading, pathOf, table } from "./frame.ts";
import { type ConsoleRequest, sendPage, type Visitor, visitorOf } from "./visit.ts";

/** Denials that a grant would lift. */
const liftable: ReadonlySet<string | undefined> = new Set([
  ...["no_grant", "role_insufficient", "grant_expired", "batch_member_denied"],
]);

export interface DraftedGrant {
  readonly user: string;
  readonly database: string;
  readonly table: string | undefined;
  readonly role: string;
}

/** The rights that an operation needs; for a Preview, those of any change it may hold. */
function rightsOf(operation: string): readonly PermissionClass[] {
  if (!isOperationName(operation)) return [];
  const { permissions, effect } = definitions[operation];
  return effect === "previews" ? [...permissions, "UPDATE"] : permissions;
}

/**
 * Drafts the smallest grant for the first denial in a line that would still be denied; undefined if
 * no grant would help.
 */
export function draftGrant(snapshot: Snapshot, line: ReadLine): DraftedGrant | undefined {
  const { user, decision, reason, via, client } = line;
  if (user === undefined || decision !== "deny" || !liftable.has(reason)) return undefined;
  const context = { via: via === "mcp" ? "mcp" : "query", client, now: Date.now() } as const;
  for (const { operation, database, tables } of line.operations) {
    const permissions = rightsOf(operation);
    const role = roles.findLast((one) => permissions.every((right) => roleAllows(one, right)));
    if (permissions.length === 0 || role === undefined) continue;
    // Creating and dropping tables are rights on the database.
    const isOfTables = role === "ReadOnly" || role === "ReadWrite";
    for (const table of isOfTables && tables.length > 0 ? tables : [undefined]) {
      const place = { permissions, database, table };
      const now = decidePlace(snapshot, user, place, context);
      const isLiftable = now.boundary === undefined && liftable.has(now.reason);
      if (!now.allowed && isLiftable) return { user, database, table, role };
    }
  }
  return undefined;
}

interface AuditView {
  readonly fields: Fields;
  /** False if the audit goes to the log. */
  readonly hasFile: boolean;
  readonly isAdministrator: boolean;
  readonly isLater: boolean;
  readonly answer: AuditAnswer | undefined;
  readonly failure: Failure | undefined;
  readonly draft: (line: ReadLine) => DraftedGrant | undefined;
}

const spans: readonly (readonly [value: string, label: string])[] = [
  ["1h", "Last hour"],
  ["24h", "Last day"],
  ["7d", "Last 7 days"],
  ["30d", "Last 30 days"],
  ["", "Everything"],
];
const outcomes: readonly (readonly [value: string, label: string])[] = [
  ["", "Any"],
  ["allowed", "Allowed"],
  ["denied", "Denied"],
  ["failed", "Failed"],
];

function text(fields: Fields, name: string, label: string): Html {
  return html`<div class="field"><label for="${name}">${label}</label><input id="${name}" name="${name}" value="${fields.get(name) ?? ""}" maxlength="128" autocapitalize="none" autocomplete="off" spellcheck="false"></div>`;
}

function select(
  fields: Fields,
  name: string,
  label: string,
  known: readonly (readonly [string, string])[],
): Html {
  const value = fields.get(name) ?? "";
  const isKnown = known.some(([one]) => one === value);
  const options = [...known, ...(isKnown ? [] : ([[value, value]] as const))].map(
    ([one, words]) =>
      html`<option value="${one}"${one === value ? html` selected` : nothing}>${words}</option>`,
  );
  return html`<div class="field"><label for="${name}">${label}</label><select id="${name}" name="${name}">${options}</select></div>`;
}

function filter(fields: Fields): Html {
  return html`<form method="get" action="/audit" class="tools sheet" role="search">
${text(fields, "user", "User")}
${text(fields, "table", "Table")}
${text(fields, "operation", "Operation")}
${select(fields, "outcome", "Outcome", outcomes)}
${select(fields, "since", "From", spans)}
<div class="field"><label for="until">Until, in UTC</label><input id="until" name="until" type="datetime-local" value="${fields.get("until") ?? ""}"></div>
<button class="primary">Show</button>
</form>`;
}

function question(fields: Fields): Html {
  const at = (name: string) => fields.get(name) ?? "";
  const span = spans.find(([value]) => value === at("since"))?.[1].toLowerCase() ?? at("since");
  const named = (label: string, name: string) =>
    at(name) === "" ? [] : [html`, ${label} <strong><bdi>${at(name)}</bdi></strong>`];
  return html`${span}${[
    ...named("until", "until"),
    ...named("user", "user"),
    ...named("table", "table"),
    ...named("operation", "operation"),
    ...named("outcome", "outcome"),
  ]}`;
}

function switchedOff(): Html {
  return html`<div class="sheet"><h2>The audit goes to the log</h2>
<p>The console reads an audit that has a file of its own. Set one in <code>gateway.toml</code>, and start the gateway again:</p>
<pre>[audit]
file = "audit.log"</pre>
<p>From then on everything that is asked and changed can be looked up here, rotated files as well.</p></div>`;
}

function none({ fields, isLater, answer }: AuditView): Html {
  const where = answer?.isLost
    ? html`The audit's files were rotated since: <a href="${pathOf("/audit", Object.fromEntries(fields))}">begin again</a>.`
    : html`Nothing ${isLater ? "older " : ""}was found for: ${question(fields)}.`;
  return html`<p class="sheet empty">${where}</p>`;
}

function older({ fields, answer }: AuditView): Html {
  const { next, reached } = answer ?? {};
  if (next === undefined) return nothing;
  const from = `${next.inode}-${next.offset}`;
  return html`<p class="actions"><a class="button" href="${pathOf("/audit", { ...Object.fromEntries(fields), from })}">Look further back</a></p>
<p class="quiet">Looked back${reached === undefined ? "" : ` to about ${reached.slice(0, 19).replace("T", " ")} UTC`}; what is older was not looked at yet.</p>`;
}

function auditPage(view: AuditView): ConsolePage {
  const { fields, hasFile, answer, failure, draft, isAdministrator } = view;
  const lines = answer?.lines ?? [];
  const list =
    lines.length === 0
      ? none(view)
      : table(
          "The audit",
          [["Time, UTC", "moment"], "Who", "What", "Outcome", ["Rows", "number"]],
          lines.map((line) => lineCells(line, draft(line))),
        );
  const found = failure === undefined ? html`${list}${older(view)}` : nothing;
  return {
    title: "Audit",
    place: "audit",
    content: html`${heading("Audit")}
${failureNote(failure)}
${hasFile ? html`${filter(fields)}${found}` : switchedOff()}
${isAdministrator || !hasFile ? nothing : html`<p class="quiet">You are shown what was asked of the databases on which you may grant, and which grants on them were changed.</p>`}`,
  };
}

function who({ user, via, client, author, msg }: ReadLine): Html {
  const isDecision = msg === "approval_approved" || msg === "approval_denied";
  const name = (isDecision ? author?.name : user) ?? author?.name ?? "-";
  const ways = [
    ...(isDecision ? [`asked by ${user ?? "-"}`] : []),
    ...(msg === "approval_used" && author !== undefined ? [`approved by ${author.name}`] : []),
    ...(via === "mcp" ? ["over MCP"] : []),
    ...(client === undefined ? [] : [`client ${client}`]),
    ...(author !== undefined && (user === undefined || isDecision) ? [author.kind] : []),
  ];
  const hint =
    ways.length === 0 ? nothing : html`<span class="hint"><bdi>${ways.join(", ")}</bdi></span>`;
  return html`<bdi>${name}</bdi>${hint}`;
}

function operationText({
  operation,
  database,
  tables,
  shape,
}: ReadLine["operations"][number]): Html {
  const place =
    tables.length === 0 ? database : tables.map((one) => `${database}.${one}`).join(", ");
  const columns =
    shape === undefined || shape === "" ? nothing : html`<span class="hint">${shape}</span>`;
  return html`<code>${`${operation} ${place}`.trim()}</code>${columns}`;
}

function changeText({ change, ...about }: ReadLine["changes"][number]): Html {
  const words = Object.values(about)
    .flat()
    .filter((word) => word !== undefined);
  return html`<span class="hint"><bdi>${[change, ...words.map(String)].join(" ")}</bdi></span>`;
}

const SHOWN = 3;

function more(count: number): Html {
  return count > 0 ? html`<span class="hint">and ${String(count)} more</span>` : nothing;
}

function what(line: ReadLine): Html {
  const { operations, operationCount, changes, method, path, msg } = line;
  const head = path === undefined ? msg.replaceAll("_", " ") : `${method ?? ""} ${path}`;
  const asked = operations.slice(0, SHOWN).map((one) => html`<div>${operationText(one)}</div>`);
  return html`${operations.length === 0 ? html`<bdi>${head}</bdi>` : asked}${more(operationCount - SHOWN)}${changes.slice(0, SHOWN).map(changeText)}${more(changes.length - SHOWN)}`;
}

function mark({ level, decision, outcome, reason, msg }: ReadLine): Html {
  if (reason === "approval_required") return html`<span class="state">held back</span>`;
  if (level === "error") return html`<span class="state bad">failed</span>`;
  if (decision === "deny" || level === "warn") return html`<span class="state bad">denied</span>`;
  const isKnown = decision !== undefined || outcome !== undefined;
  if (isKnown) return html`<span class="state good">allowed</span>`;
  const [, step = "done"] = /^approval_(.+)$/.exec(msg) ?? [];
  return html`${step}`;
}

function outcome(line: ReadLine, draft: DraftedGrant | undefined): Html {
  const { reason, operations, approval } = line;
  const said = reason ?? (line.outcome === "allowed" ? undefined : line.outcome);
  const entries = [...new Set(operations.flatMap(({ entry }) => entry ?? []))].join(", ");
  const boundary = operations.find((one) => one.boundary !== undefined)?.boundary;
  return html`${mark(line)}${said === undefined ? nothing : html` <bdi>${said}</bdi>`}${
    entries === ""
      ? nothing
      : html`<span class="hint">by the entry for <code>${entries}</code></span>`
  }${boundary === undefined ? nothing : html`<span class="hint">by the boundary <code>${boundary}</code></span>`}${
    approval === undefined
      ? nothing
      : html`<span class="hint">approval <code>${approval.slice(0, 8)}</code></span>`
  }${
    draft === undefined
      ? nothing
      : html`<span class="hint"><a href="${pathOf("/access/entry", { ...draft })}">Draft a grant: ${draft.role} on ${draft.table === undefined ? draft.database : `${draft.database}.${draft.table}`}</a></span>`
  }`;
}

function rows({ affected, rows: read }: ReadLine): Html {
  if (affected !== undefined) return html`${String(affected)} changed`;
  return read === undefined ? nothing : html`${String(read)} read`;
}

function lineCells(line: ReadLine, draft: DraftedGrant | undefined): (Html | string)[] {
  const time = line.time.slice(0, 19).replace("T", " ");
  return [time, who(line), what(line), outcome(line, draft), rows(line)];
}

const PAGE = 50;
const PATIENCE_MS = 5000;
/** A search is aborted after this time, since compressed files are read whole. */
const LONGEST_MS = 60_000;

const names = ["user", "table", "operation", "outcome", "since", "until"];

function fieldsOf(c: ConsoleRequest): Map<string, string> {
  const asked = names.map((name) => [name, (c.req.query(name) ?? "").trim()] as const);
  const fields = new Map(asked);
  if (c.req.query("since") === undefined) fields.set("since", "24h");
  return fields;
}

/** Parses a moment from the form as UTC; browsers send it without a time zone. */
function momentOf(name: string, text: string, otherwise: number): number {
  if (text === "") return otherwise;
  const written = /^\d{4}-\d\d-\d\dT\d\d:\d\d$/.test(text) ? `${text}:00Z` : text;
  const moment = readMoment(written);
  if (moment !== undefined) return moment;
  throw new Refusal("bad_request", { message: `${name} may be ${moments}` });
}

/** @throws Refusal `bad_request` that says what is wrong */
function filterOf(fields: ReadonlyMap<string, string>): AuditFilter {
  const at = (name: string) => fields.get(name) || undefined;
  return {
    ...{ user: at("user"), table: at("table"), operation: at("operation") },
    outcome: auditOutcomes.find((one) => one === at("outcome")),
    since: momentOf("From", fields.get("since") ?? "", 0),
    until: momentOf("Until", fields.get("until") ?? "", Number.POSITIVE_INFINITY),
  };
}

function positionOf(text: string | undefined): AuditPosition | undefined {
  const [, inode, offset] = /^(\d{1,20})-(\d{1,15})$/.exec(text ?? "") ?? [];
  return inode === undefined ? undefined : { inode, offset: Number(offset) };
}

/**
 * The databases whose lines a visitor may see; undefined for administrators, who see every line.
 */
export function shownTo({ snapshot, actor, isAdministrator }: Visitor): ShownDatabases | undefined {
  const { isVisible } = manageableBy(snapshot, actor);
  if (isAdministrator) return undefined;
  const known = [...snapshot.databases.values(), EVERY_DATABASE];
  return {
    named: new Map(known.map((name) => [name, isVisible(name)])),
    others: isVisible(EVERY_DATABASE),
  };
}

async function ask(
  c: ConsoleRequest,
  visitor: Visitor,
  file: string,
  fields: ReadonlyMap<string, string>,
): Promise<AuditAnswer> {
  const question = {
    ...{ file, filter: filterOf(fields), shown: shownTo(visitor) },
    ...{ from: positionOf(c.req.query("from")), limit: PAGE, patience: PATIENCE_MS },
  };
  const signal = AbortSignal.any([c.req.raw.signal, AbortSignal.timeout(LONGEST_MS)]);
  try {
    return await askAudit<AuditAnswer>(question, signal);
  } catch (error) {
    if (error instanceof Refusal) throw error;
    const reason = error instanceof Error ? error.message : "unknown";
    c.var.gateway.log.warn({ file, reason }, "the audit cannot be read");
    throw new Refusal("busy", { message: "The audit's files cannot be read just now" });
  }
}

/** `GET /audit`: requests and changes, newest first. */
export async function showAudit(c: ConsoleRequest): Promise<Response> {
  const visitor = visitorOf(c);
  const { snapshot, actor } = visitor;
  manageableBy(snapshot, actor);
  const { file } = c.var.gateway.configuration.audit;
  const fields = fieldsOf(c);
  let failure: Failure | undefined;
  let answer: AuditAnswer | undefined;
  try {
    if (file !== undefined) answer = await ask(c, visitor, file, fields);
  } catch (error) {
    failure = failureOf(error);
  }
  const page = auditPage({
    ...{ fields, hasFile: file !== undefined, isAdministrator: visitor.isAdministrator },
    ...{ isLater: c.req.query("from") !== undefined, answer, failure },
    draft: (line) =>
      mayGrantTo(snapshot, actor, line.user ?? "") ? draftGrant(snapshot, line) : undefined,
  });
  return sendPage(c, visitor, page, failure?.status);
}

const MOST_QUESTIONS = 2;
/** Heap limit per search in megabytes. */
const MOST_MEMORY = 128;

let asked = 0;

/**
 * Searches the audit files in a thread.
 *
 * @throws Refusal `busy`, or the file system's error
 */
export async function askAudit<Answer>(
  question: AuditQuestion | SummaryQuestion,
  signal: AbortSignal,
): Promise<Answer> {
  if (asked >= MOST_QUESTIONS) throw new Refusal("busy", { retryAfter: 2 });
  asked += 1;
  const worker = new Worker(siblingModule(import.meta.url, "audit-program"), {
    workerData: question,
    resourceLimits: { maxOldGenerationSizeMb: MOST_MEMORY },
  });
  const giveUp = () => void worker.terminate();
  signal.addEventListener("abort", giveUp, { once: true });
  try {
    const { promise, resolve, reject } = Promise.withResolvers<Answer>();
    worker.once("message", resolve).once("error", reject);
    worker.once("exit", () => reject(new Refusal("busy", { retryAfter: 2 })));
    return await promise;
  } finally {
    asked -= 1;
    signal.removeEventListener("abort", giveUp);
    giveUp();
  }
}
