import type { AccessDiff } from "../../access/diff.ts";
import { dateOf, type Html, html, nothing } from "../../pages/html.ts";
import type { AccessEvent } from "../access-history.ts";
import type { GatewayState, UpstreamState } from "../options.ts";
import { type ConsolePage, table } from "./frame.ts";

/** What the page of the gateway's state shows. Times in epoch seconds. */
export interface StateView extends GatewayState {
  readonly gatewayUrl: string;
  readonly accessVersion: string;
  readonly accessStale: boolean;
  readonly revocationsStale: boolean;
  readonly users: number;
  readonly administrators: readonly string[];
  /** What has become of the access rules, the newest first. */
  readonly events: readonly AccessEvent[];
  /** Since when that is known. */
  readonly since: number;
}

/** Names of one kind of change that are shown. */
const SHOWN = 20;

const kinds: readonly (readonly [keyof AccessDiff, string])[] = [
  ["usersAdded", "Users added"],
  ["usersRemoved", "Users removed"],
  ["usersChanged", "Users changed"],
  ["grantsAdded", "Grants added"],
  ["grantsRemoved", "Grants removed"],
  ["grantsRaised", "Grants raised"],
  ["grantsLowered", "Grants lowered"],
  ["grantsChanged", "Grants changed"],
  ["boundariesAdded", "Boundaries added"],
  ["boundariesRemoved", "Boundaries removed"],
];

/** Good or bad, in a word, never by colour alone. */
function mark(isGood: boolean, good: string, bad: string): Html {
  return isGood
    ? html`<span class="state good">${good}</span>`
    : html`<span class="state bad">${bad}</span>`;
}

function names(list: readonly string[]): Html {
  const more = list.length - SHOWN;
  const rest = more > 0 ? html`<li>and ${String(more)} more</li>` : nothing;
  return html`<ul>${list.slice(0, SHOWN).map((name) => html`<li><bdi>${name}</bdi></li>`)}${rest}</ul>`;
}

function differences(diff: AccessDiff): Html[] {
  const shown = kinds.filter(([kind]) => diff[kind].length > 0);
  if (shown.length === 0) {
    return [html`<p class="quiet">Nothing that decides: order, comments or spelling.</p>`];
  }
  return shown.map(([kind, label]) => html`<h4>${label}</h4>${names(diff[kind])}`);
}

function event(one: AccessEvent): Html {
  const when = html`<p class="quiet">${dateOf(one.at)}</p>`;
  if (one.kind === "loaded") {
    return html`<section class="sheet"><h3>Version <code>${one.version}</code></h3>${when}${differences(one.diff)}</section>`;
  }
  const problems = one.problems.map(
    ({ line, reason }) =>
      html`<li>${line === undefined ? nothing : html`Line ${String(line)}: `}${reason}</li>`,
  );
  return html`<section class="sheet"><h3><span class="state bad">Refused: the last good state stayed in force</span></h3>${when}<ul>${problems}</ul></section>`;
}

function upstreams(list: readonly UpstreamState[]): Html {
  return table(
    "Databases behind the gateway",
    ["Where", "State", "Queries now"],
    list.map(({ name, isUp, busy }) => [
      html`<code>${name}</code>`,
      mark(isUp, "Answers", "Does not answer"),
      String(busy),
    ]),
  );
}

/** What needs somebody's attention now, as sentences. */
function troubles(view: StateView): string[] {
  const down = view.upstreams
    .filter(({ isUp }) => !isUp)
    .map(({ name }) => `${name} does not answer: queries for it are refused.`);
  return [
    ...(view.accessStale
      ? ["The access file was changed and refused: the last good state is in force."]
      : []),
    ...(view.revocationsStale
      ? ["The revocations file was refused: the last good state is in force."]
      : []),
    ...(view.keysStale
      ? ["The signing keys on disk cannot be used: the last good ones are in force."]
      : []),
    ...down,
  ];
}

function summary(view: StateView): Html {
  const found = troubles(view);
  if (found.length === 0)
    return html`<div class="note done"><p><strong>Everything is in order.</strong></p></div>`;
  return html`<div class="note error"><p><strong>This needs your attention:</strong></p><ul>${found.map((one) => html`<li>${one}</li>`)}</ul></div>`;
}

function facts(view: StateView): Html {
  const { administrators, verifiers } = view;
  const keys =
    verifiers.length === 0
      ? nothing
      : html`<dt>Keys that verify</dt><dd>${verifiers.map((kid) => html`<code>${kid}</code> `)}</dd>`;
  return html`<dl class="sheet">
<dt>Gateway</dt><dd><bdi>${view.gatewayUrl}</bdi>, version ${view.version}</dd>
<dt>Access version</dt><dd><code>${view.accessVersion}</code> ${mark(!view.accessStale, "In force", "An older state than on disk")}</dd>
<dt>Users</dt><dd>${String(view.users)}</dd>
<dt>Administrators</dt><dd>${administrators.length === 0 ? "none" : html`<bdi>${administrators.join(", ")}</bdi>`}</dd>
<dt>Revocations</dt><dd>${mark(!view.revocationsStale, "In force", "An older state than on disk")}</dd>
<dt>Signing key</dt><dd><code>${view.signer}</code>, ${view.algorithm} ${mark(!view.keysStale, "In force", "Other than on disk")}</dd>
${keys}
</dl>`;
}

/** The page of the gateway's state. */
export function statePage(view: StateView): ConsolePage {
  const { events, since } = view;
  const changes =
    events.length === 0
      ? html`<p class="sheet empty">Nobody has changed users or grants since ${dateOf(since)}, when this console started.</p>`
      : html`${events.map(event)}<p class="quiet">What came before ${dateOf(since)}, when this console started, is in the audit log.</p>`;
  return {
    title: "State",
    place: "state",
    content: html`<h1>State</h1>
${summary(view)}
<h2>In force</h2>
${facts(view)}
<h2>Databases</h2>
${upstreams(view.upstreams)}
<h2>What changed</h2>
${changes}`,
  };
}
