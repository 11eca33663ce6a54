import { epochSeconds } from "../../clock.ts";
import { counted } from "../../counted.ts";
import { dateOf, type Html, html, nothing } from "../../pages/html.ts";
import type { AccessEvent } from "../access-history.ts";
import type { CertificateState, GatewayState, StoreState, UpstreamState } from "../options.ts";
import { type ConsolePage, heading, type Refreshing, refreshNote, table } from "./frame.ts";
import { versionList } from "./state-versions.ts";

/** What the page of the gateway's state shows. Times in epoch seconds. */
export interface StateView extends GatewayState {
  readonly gatewayUrl: string;
  readonly accessVersion: string;
  readonly accessStale: boolean;
  readonly revocationsStale: boolean;
  readonly revocationsFailure: string | undefined;
  readonly users: number;
  readonly administrators: readonly string[];
  /** What has become of the access rules, the newest first. */
  readonly events: readonly AccessEvent[];
  /** Since when that is known; undefined where a log has all of it. */
  readonly since: number | undefined;
  readonly refreshing: Refreshing;
}

const DAY = 86_400;
/** Seconds before its end in which a certificate is told of. */
const SOON = 14 * DAY;

/** Good or bad, in a word, never by colour alone. */
function mark(isGood: boolean, good: string, bad: string): Html {
  return isGood
    ? html`<span class="state good">${good}</span>`
    : html`<span class="state bad">${bad}</span>`;
}

/** A span of time in its largest unit. @param seconds of it */
function spanOf(seconds: number): string {
  const units = [
    [DAY, "day"],
    [3600, "hour"],
    [60, "minute"],
  ] as const;
  const [size, name] = units.find(([one]) => seconds >= one) ?? [1, "second"];
  return counted(Math.floor(seconds / size), name);
}

function upstreams(list: readonly UpstreamState[]): Html {
  return table(
    "Databases behind the gateway",
    ["Where", "Databases", "State", "Circuit", ["Queries now", "number"], ["Waiting", "number"]],
    list.map(({ name, databases, isUp, isLive, busy, waiting }) => [
      html`<code>${name}</code>`,
      databases === undefined ? "all others" : html`<code>${databases.join(", ")}</code>`,
      mark(isUp, "Answers", "Does not answer"),
      mark(isLive, "Closed", "Open: queries go elsewhere"),
      ...[String(busy), String(waiting)],
    ]),
  );
}

function keyTable({ algorithm, keys }: StateView, now: number): Html {
  return table(
    "Signing keys",
    ["Key", "State", ["Made", "moment"], ["Age", "number"], ["Verifies until", "moment"]],
    keys.map(({ kid, state, created, verifiesUntil }) => [
      html`<code>${kid}</code>`,
      state === "signs" ? html`<strong>Signs</strong> by ${algorithm}` : "Verifies",
      dateOf(created),
      spanOf(Math.max(0, now - created)),
      verifiesUntil === undefined ? html`<span class="dim">no end</span>` : dateOf(verifiesUntil),
    ]),
  );
}

function replicas({ own, lag, status }: StoreState): Html {
  if (status === undefined)
    return html`<p class="sheet empty">The store does not answer: what replicas there are is not known. This one is <code>${own}</code>.</p>`;
  const { version, form, readableForm } = status;
  const rows = status.replicas.map((one) => [
    html`<code>${one.name}</code>${one.name === own ? html` <strong>(this one)</strong>` : nothing}`,
    ...[String(one.applied), String(Math.max(0, version - one.applied))],
    one.rest > 0 ? `in ${spanOf(one.rest)}` : mark(false, "", `${spanOf(-one.rest)} ago`),
    String(one.form),
    dateOf(Math.floor(one.since.getTime() / 1000)),
  ]);
  const head = ["Replica", ["Applied", "number"], ["Behind", "number"]] as const;
  const rest = ["Lease ends", ["Form", "number"], ["Since", "moment"]] as const;
  return html`${table("Replicas", [...head, ...rest], rows)}
<p class="quiet">The store is at version ${String(version)}, in form ${String(form)}; this release reads forms up to ${String(readableForm)}.${lag > 0 ? ` This replica has ${lag} versions to apply.` : ""}</p>`;
}

/** What needs somebody's attention now, as sentences. */
function troubles(view: StateView, now: number): string[] {
  const { accessStale, revocationsStale, revocationsFailure, keysFailure, certificate } = view;
  const { configurationFailure } = view;
  const reason = revocationsFailure === undefined ? "" : `: ${revocationsFailure}`;
  const left = certificate === undefined ? SOON : certificate.expires.getTime() / 1000 - now;
  const found = [
    configurationFailure !== undefined &&
      `The configuration was refused: ${configurationFailure}. The last good one is in force.`,
    accessStale &&
      "The access file was refused, for the reason below: the last good state is in force.",
    revocationsStale &&
      `The revocations file was refused${reason}. The last good state is in force.`,
    keysFailure !== undefined &&
      `The signing keys were refused: ${keysFailure}. The last good ones are in force.`,
    certificate?.failure !== undefined &&
      `The TLS certificate was refused: ${certificate.failure}. The last good one is served.`,
    left <= 0 && "The TLS certificate has expired.",
    left > 0 && left < SOON && `The TLS certificate expires in ${spanOf(left)}.`,
    view.store?.isReached === false &&
      "The store does not answer: nothing can be changed, and soon nothing is decided.",
  ];
  const down = view.upstreams
    .filter(({ isUp }) => !isUp)
    .map(({ name }) => `${name} does not answer: queries for it are refused, or go to another.`);
  return [...found.filter((sentence) => sentence !== false), ...down];
}

/** Says whether everything is in order. */
export function summary(view: StateView, now: number): Html {
  const found = troubles(view, now);
  if (found.length === 0)
    return html`<div class="note done"><p><strong>Everything is in order.</strong></p></div>`;
  return html`<div class="note error"><p><strong>This needs your attention:</strong></p><ul>${found.map((one) => html`<li>${one}</li>`)}</ul></div>`;
}

function certificateFact({ names, expires, failure }: CertificateState): Html {
  return html`<dt>Certificate</dt><dd>${names}, until ${dateOf(Math.floor(expires.getTime() / 1000))} ${mark(failure === undefined, "In force", "Other than on disk")}</dd>`;
}

function facts(view: StateView): Html {
  const { administrators, certificate } = view;
  return html`<dl class="sheet">
<dt>Gateway</dt><dd><bdi>${view.gatewayUrl}</bdi>, version ${view.version}</dd>
<dt>Access version</dt><dd><code>${view.accessVersion}</code> ${mark(!view.accessStale, "In force", "An older state than on disk")}</dd>
<dt>Users</dt><dd>${String(view.users)}</dd>
<dt>Administrators</dt><dd>${administrators.length === 0 ? "none" : html`<bdi>${administrators.join(", ")}</bdi>`}</dd>
<dt>Revocations</dt><dd>${mark(!view.revocationsStale, "In force", "An older state than on disk")}</dd>
<dt>Signing keys</dt><dd>${mark(view.keysFailure === undefined, "In force", "Other than those that are held")}</dd>
${certificate === undefined ? nothing : certificateFact(certificate)}
</dl>`;
}

/** The page of the gateway's state. */
export function statePage(view: StateView): ConsolePage {
  const now = epochSeconds();
  const shared =
    view.store === undefined ? nothing : html`<h2>Replicas</h2>${replicas(view.store)}`;
  return {
    title: "State",
    place: "state",
    refresh: view.refreshing.isPaused ? undefined : view.refreshing.path,
    content: html`${heading("State")}
${refreshNote(view.refreshing)}
${summary(view, now)}
<h2>In force</h2>
${facts(view)}
<h2>Databases</h2>
${upstreams(view.upstreams)}
${shared}
<h2>Signing keys</h2>
${keyTable(view, now)}
<h2>Versions of users and grants</h2>
${versionList(view.events, view.since)}`,
  };
}
