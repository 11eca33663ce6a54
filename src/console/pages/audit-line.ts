import type { ReadLine } from "../../observe/audit-filter.ts";
import { type Html, html, nothing } from "../../pages/html.ts";
import type { DraftedGrant } from "../audit-draft.ts";
import { pathOf } from "./entries.ts";

function who({ user, via, client, author }: ReadLine): Html {
  const name = user ?? author?.name ?? "-";
  const ways = [
    ...(via === "mcp" ? ["over MCP"] : []),
    ...(client === undefined ? [] : [`client ${client}`]),
    ...(user === undefined && author !== undefined ? [author.kind] : []),
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
export function lineCells(line: ReadLine, draft: DraftedGrant | undefined): (Html | string)[] {
  const time = line.time.slice(0, 19).replace("T", " ");
  return [time, who(line), what(line), outcome(line, draft), rows(line)];
}
