import type { ReadLine } from "../../observe/audit-filter.ts";
import type { AuditAnswer } from "../../observe/audit-search.ts";
import { type Html, html, nothing } from "../../pages/html.ts";
import type { DraftedGrant } from "../audit-draft.ts";
import type { Failure } from "../changes.ts";
import { type Fields, failureNote } from "./forms.ts";
import { type ConsolePage, heading, pathOf, table } from "./frame.ts";

interface AuditView {
  /** What is asked. */
  readonly fields: Fields;
  /** False if the audit goes to the log. */
  readonly hasFile: boolean;
  readonly isAdministrator: boolean;
  /** True if it is not the first page. */
  readonly isLater: boolean;
  readonly answer: AuditAnswer | undefined;
  readonly failure: Failure | undefined;
  /** The grant that would have let something pass. */
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

/** What is asked, in words. */
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

/** The page of the audit. */
export function auditPage(view: AuditView): ConsolePage {
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

/** Operations and changes of one line that are shown. */
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

/** A line of the audit as a row: time, who, what, outcome, rows. */
function lineCells(line: ReadLine, draft: DraftedGrant | undefined): (Html | string)[] {
  const time = line.time.slice(0, 19).replace("T", " ");
  return [time, who(line), what(line), outcome(line, draft), rows(line)];
}
