import { type Approval, type ApprovalState, summaryOf } from "../../approvals/approval.ts";
import { visibleJson } from "../../approvals/shown-rows.ts";
import { keepSpelling } from "../../json/exact-numbers.ts";
import { dateOf, type Html, html, nothing } from "../../pages/html.ts";
import { type ConsolePage, heading, type Refreshing, refreshNote, table } from "./frame.ts";

/** What the page of approvals shows; the newest first. */
interface ApprovalsView {
  /** Those that its reader may decide on. */
  readonly waiting: readonly Approval[];
  /** Those that wait for somebody else. */
  readonly others: readonly Approval[];
  readonly decided: readonly Approval[];
  /** How many there are besides. */
  readonly more: number;
  /** What pending ones would do, by their ids, as far as the reader may know. */
  readonly queries: ReadonlyMap<string, PendingQuery>;
  readonly refreshing: Refreshing;
}

/** What tells two pending approvals of a kind apart. */
export interface PendingQuery {
  /** Its condition and what it writes. */
  readonly words: string;
  /** How many rows it would touch; undefined where nobody counts them. */
  readonly rows: number | undefined;
}

/** Characters of a query in words. */
const LONGEST_WORDS = 200;

function isRecord(value: unknown): value is Readonly<Record<string, unknown>> {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

function conditionInWords(where: unknown): string {
  if (where === null) return "every row";
  if (!isRecord(where)) return JSON.stringify(where);
  const { column, cmp, value, and, or, not } = where;
  if (not !== undefined) return `not (${conditionInWords(not)})`;
  if (Array.isArray(and)) return and.map(conditionInWords).join(" and ");
  if (Array.isArray(or)) return `(${or.map(conditionInWords).join(" or ")})`;
  if (typeof column !== "string") return JSON.stringify(where);
  return `${column} ${String(cmp)} ${JSON.stringify(value) ?? ""}`;
}

function operationInWords(operation: unknown): string[] {
  const [fields] = isRecord(operation) ? Object.values(operation) : [];
  if (Array.isArray(fields)) return fields.slice(0, 3).flatMap(operationInWords);
  if (!isRecord(fields)) return [];
  const { set, values, where } = fields;
  const assignments = isRecord(set) ? Object.entries(set) : [];
  const written = assignments.map(([name, value]) => `${name} = ${JSON.stringify(value)}`);
  return [
    ...(written.length === 0 ? [] : [`set ${written.join(", ")}`]),
    ...(values === undefined ? [] : [`values ${JSON.stringify(values)}`]),
    ...(where === undefined ? [] : [`where ${conditionInWords(where)}`]),
  ];
}

/** The condition of a query, and what it writes, as far as a line has room. */
export function queryInWords(body: Buffer): string {
  const words = operationInWords(JSON.parse(body.toString(), keepSpelling)).join(" ");
  const text = visibleJson(words.slice(0, LONGEST_WORDS));
  return words.length > LONGEST_WORDS ? `${text}...` : text;
}

const outcomes: Readonly<Record<ApprovalState, string>> = {
  pending: "Waiting",
  approved: "Approved",
  denied: "Denied",
  expired: "Expired",
  used: "Approved and used",
  void: "Void",
};

/** What has become of an approval, in a word or two. */
export function outcomeOf({ state }: Approval): string {
  return outcomes[state];
}

/** The same, good or bad, never by colour alone. */
export function outcomeMark(approval: Approval): Html {
  const { state } = approval;
  if (state === "pending") return html`<span class="state">${outcomeOf(approval)}</span>`;
  const isGood = state === "approved" || state === "used";
  return html`<span class="state ${isGood ? "good" : "bad"}">${outcomeOf(approval)}</span>`;
}

/** How long it is until then. */
export function timeLeft(until: number, now: number): string {
  const seconds = Math.max(0, Math.ceil((until - now) / 1000));
  return seconds < 120 ? `in ${seconds} s` : `in ${Math.floor(seconds / 60)} min`;
}

/** Epoch milliseconds to the minute. */
export function momentOf(milliseconds: number): string {
  return dateOf(milliseconds / 1000);
}

/** How it has come. */
export function wayOf({ via, client }: Approval): Html {
  const way = html`<code>${via === "mcp" ? "/mcp" : "/query"}</code>`;
  return client === undefined ? way : html`${way}, client <bdi>${client}</bdi>`;
}

function titled(approval: Approval): Html {
  return html`<a href="/approvals/${approval.id}"><code>${summaryOf(approval)}</code></a>`;
}

function waitingTable(
  label: string,
  list: readonly Approval[],
  { queries, refreshing: { now } }: ApprovalsView,
): Html {
  const described = (one: Approval) => queries.get(one.id);
  const rows = (one: Approval) => described(one)?.rows;
  return table(
    label,
    [
      ...["What", "Asked by", "Comes by"],
      ...([
        ["Rows", "number"],
        ["Asked", "moment"],
        ["Ends", "moment"],
      ] as const),
    ],
    list.map((one) => [
      html`${titled(one)}<span class="hint"><bdi>${described(one)?.words ?? ""}</bdi></span>`,
      html`<bdi>${one.username}</bdi>`,
      wayOf(one),
      rows(one) === undefined ? html`<span class="dim">not counted</span>` : String(rows(one)),
      momentOf(one.asked),
      timeLeft(one.expires, now),
    ]),
  );
}

function decidedTable(list: readonly Approval[]): Html {
  return table(
    "Decided",
    ["What", "Asked by", "Outcome", "Decided by", ["Asked", "moment"]],
    list.map((one) => [
      titled(one),
      html`<bdi>${one.username}</bdi>`,
      html`${outcomeMark(one)}${one.reason === undefined ? nothing : html`<span class="hint"><bdi>${one.reason}</bdi></span>`}`,
      one.author === undefined ? "nobody" : html`<bdi>${one.author.name}</bdi>`,
      momentOf(one.asked),
    ]),
  );
}

/** The page of approvals. */
export function approvalsPage(view: ApprovalsView): ConsolePage {
  const { waiting, others, decided, more, refreshing } = view;
  return {
    title: "Approvals",
    place: "approvals",
    refresh: refreshing.isPaused ? undefined : refreshing.path,
    content: html`${heading("Approvals")}
${refreshNote(refreshing)}
<h2>For you to decide</h2>
${
  waiting.length === 0
    ? html`<p class="sheet empty">Nothing waits for you. What an entry or a permission boundary with <code>require_approval</code> holds back is listed here, until somebody has decided or its time is up.</p>`
    : waitingTable("For you to decide", waiting, view)
}
${others.length === 0 ? nothing : html`<h2>For others to decide</h2>${waitingTable("For others to decide", others, view)}`}
<h2>Decided</h2>
${decided.length === 0 ? html`<p class="sheet empty">Nothing was decided lately.</p>` : decidedTable(decided)}
${more === 0 ? nothing : html`<p class="quiet">${String(more)} more are not shown: <code>gatehouse approvals list --all</code> has them.</p>`}
<p class="quiet">What is older is in the audit.</p>`,
  };
}
