import { requireAdministrator } from "../access/administration.ts";
import type { EffectChange } from "../access/diff.ts";
import { isAdministrator } from "../access/snapshot.ts";
import { epochSeconds } from "../clock.ts";
import { withoutPassword } from "../config/addresses.ts";
import { hasOwnEngine, ownDatabaseUrl } from "../gateway/own-engine.ts";
import type { Listener } from "../gateway/server.ts";
import { dateOf, type Html, html, nothing } from "../pages/html.ts";
import { version } from "../product.ts";
import { Refusal } from "../refusal.ts";
import type { StoreReplica } from "../store/open.ts";
import { counted } from "../suggestion.ts";
import type { AccessEvent, ChangedNames, FailedReload, LoadedVersion } from "./access-history.ts";
import { type ConsolePage, heading, pathOf, refreshNote, roleBadge, table } from "./frame.ts";
import { type Console, type ConsoleRequest, refreshingOf, sendPage, visitorOf } from "./visit.ts";

const labels: Readonly<Record<ChangedNames["kind"], string>> = {
  usersAdded: "added",
  usersRemoved: "removed, with all grants",
  usersChanged: "another password, email, state or attributes",
  boundariesAdded: "boundary added",
  boundariesRemoved: "boundary removed",
};

function written(value: unknown): string {
  return value === undefined ? "none" : JSON.stringify(value);
}

/** Rights gained and lost, marked by signs as well as colors. */
function rightsOf({ gains, loses, limits, before, after }: EffectChange): Html {
  const gained =
    gains.length === 0 ? nothing : html`<span class="gain">+ ${gains.join(", ")}</span> `;
  const lost =
    loses.length === 0 ? nothing : html`<span class="loss">\u2212 ${loses.join(", ")}</span> `;
  const others = limits.map(
    (key) =>
      html`<span class="hint"><code>${key}</code> ${written(before.limits[key])} to ${written(after.limits[key])}</span>`,
  );
  return html`${gained}${lost}${others}`;
}

function standing({ role, entry }: EffectChange["before"]): Html {
  return entry === undefined ? html`<span class="dim">no grant</span>` : roleBadge(role);
}

type Cells = (Html | string)[];

function effectCells(change: EffectChange): Cells {
  const { username, place, before, after } = change;
  return [
    html`<a href="${pathOf("/access/user", { user: username })}"><bdi>${username}</bdi></a>`,
    html`<code>${place}</code>`,
    rightsOf(change),
    html`${standing(before)} \u2192 ${standing(after)}`,
  ];
}

function recordCells({ kind, names, more }: ChangedNames): Cells {
  const rest = more > 0 ? `, and ${more} more` : "";
  return [html`<bdi>${names.join(", ")}</bdi>${rest}`, "", labels[kind], ""];
}

function authorOf({ author }: LoadedVersion): Html {
  if (author === undefined) return nothing;
  const ways = { api: "", console: ", in the console", cli: ", by command", store: ", a replica" };
  return html`<span class="hint">by <bdi>${author.name}</bdi>${ways[author.kind]}</span>`;
}

function loaded(one: LoadedVersion): Cells[] {
  const { version, at, effects, hasOthers, records } = one;
  const name = html`<code>${version}</code><span class="hint">${dateOf(at)}</span>${authorOf(one)}`;
  const again = html`<span class="again"><code>${version}</code></span>`;
  const cells = [
    ...effects.map(effectCells),
    ...records.map(recordCells),
    ...(hasOthers ? [["and others", "", "", ""]] : []),
  ];
  if (cells.length === 0)
    cells.push(["", "", html`<span class="dim">no change to users or grants</span>`, ""]);
  return cells.map((row, index) => [index === 0 ? name : again, ...row]);
}

function refused({ at, problems }: FailedReload): Cells {
  const list = problems.map(
    ({ line, reason }) =>
      html`<li>${line === undefined ? nothing : html`Line ${String(line)}: `}${reason}</li>`,
  );
  const name = html`<span class="state bad">Refused</span><span class="hint">${dateOf(at)}</span>`;
  const stayed = html`<span class="hint">the last good state stayed in force</span>`;
  return [name, "", "", html`<ul class="plain">${list}</ul>${stayed}`, ""];
}

/** Lists versions, newest first. @param since epoch seconds before which changes are unknown */
export function versionList(events: readonly AccessEvent[], since: number | undefined): Html {
  if (events.length === 0) {
    const sentence =
      since === undefined
        ? "Nobody has changed users or grants yet."
        : `Nobody has changed users or grants since ${dateOf(since)}, when this gateway started.`;
    return html`<p class="sheet empty">${sentence}</p>`;
  }
  const before =
    since === undefined
      ? html`What came before is listed by <code>gatehouse access history</code>.`
      : html`What came before ${dateOf(since)}, when this gateway started, is in the audit log.`;
  const rows = events.flatMap((one) => (one.kind === "loaded" ? loaded(one) : [refused(one)]));
  const head = ["Version", "User", "Where", "Gains and loses", "Role"];
  return html`${table("Versions of users and grants", head, rows)}<p class="quiet">${before}</p>`;
}

export type StateView = Awaited<ReturnType<typeof stateViewOf>>;

const DAY = 86_400;
/** Seconds before a certificate's expiry from which the page warns. */
const SOON = 14 * DAY;

/** Marks a state as good or bad, never by color only. */
function mark(isGood: boolean, good: string, bad: string): Html {
  return isGood
    ? html`<span class="state good">${good}</span>`
    : html`<span class="state bad">${bad}</span>`;
}

function spanOf(seconds: number): string {
  const units = [
    [DAY, "day"],
    [3600, "hour"],
    [60, "minute"],
  ] as const;
  const [size, name] = units.find(([one]) => seconds >= one) ?? [1, "second"];
  return counted(Math.floor(seconds / size), name);
}

function upstreams({ upstreams: list }: StateView): Html {
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

function replicas({ own, lag, status }: NonNullable<StateView["store"]>): Html {
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

function troubles(view: StateView, now: number): string[] {
  const { accessStale, revocationsStale, revocationsFailure, keysFailure, certificate } = view;
  const { configurationFailure } = view;
  const reason = revocationsFailure === undefined ? "" : `: ${revocationsFailure}`;
  const expires = certificate?.certificate.expires;
  const left = expires === undefined ? SOON : expires.getTime() / 1000 - now;
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

export function summary(view: StateView, now: number): Html {
  const found = troubles(view, now);
  if (found.length === 0)
    return html`<div class="note done"><p><strong>Everything is in order.</strong></p></div>`;
  return html`<div class="note error"><p><strong>This needs your attention:</strong></p><ul>${found.map((one) => html`<li>${one}</li>`)}</ul></div>`;
}

function certificateFact({
  certificate: { names, expires },
  failure,
}: NonNullable<Listener["secure"]>): Html {
  return html`<dt>Certificate</dt><dd>${names}, until ${dateOf(Math.floor(expires.getTime() / 1000))} ${mark(failure === undefined, "In force", "Other than on disk")}</dd>`;
}

function facts(view: StateView): Html {
  const { administrators, certificate } = view;
  return html`<dl class="sheet">
<dt>Gateway</dt><dd><bdi>${view.gatewayUrl}</bdi>, version ${version}</dd>
<dt>Access version</dt><dd><code>${view.accessVersion}</code> ${mark(!view.accessStale, "In force", "An older state than on disk")}</dd>
<dt>Users</dt><dd>${String(view.users)}</dd>
<dt>Administrators</dt><dd>${administrators.length === 0 ? "none" : html`<bdi>${administrators.join(", ")}</bdi>`}</dd>
<dt>Revocations</dt><dd>${mark(!view.revocationsStale, "In force", "An older state than on disk")}</dd>
<dt>Signing keys</dt><dd>${mark(view.keysFailure === undefined, "In force", "Other than those that are held")}</dd>
${certificate === undefined ? nothing : certificateFact(certificate)}
</dl>`;
}

function statePage(view: StateView): ConsolePage {
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
${upstreams(view)}
${shared}
<h2>Signing keys</h2>
${keyTable(view, now)}
<h2>Versions of users and grants</h2>
${versionList(view.events, view.since)}`,
  };
}

const NAMED = 8;

async function upstreamStates({ gateway: { routing }, loaded }: Console) {
  const states = routing.targets.map(async (target) => {
    const { busy, waiting, isLive } = target;
    const databases = routing.databasesAt(target);
    // The embedded engine listens on a private socket whose name means nothing to users.
    const isOwnEngine = databases === undefined && hasOwnEngine(loaded);
    const name = isOwnEngine ? withoutPassword(ownDatabaseUrl(loaded)) : target.name;
    return { name, databases, busy, waiting, isLive, isUp: await target.isUp() };
  });
  return Promise.all(states);
}

async function storeState({ store, replica }: StoreReplica) {
  const { name: own, isReached, lag } = replica;
  // Loaded on demand, because a gateway without a store does not need it.
  const { readStatus } = await import("../store/open.ts");
  try {
    return { own, isReached, lag, status: await readStatus(store.database) };
  } catch (error) {
    if (!(error instanceof Refusal)) throw error;
    return { own, isReached: false, lag, status: undefined };
  }
}

export async function stateViewOf(c: ConsoleRequest) {
  const { gateway, listener, store, history } = c.var;
  const { access, revocations, keys, publicUrl } = gateway;
  const { snapshot } = access;
  return {
    configurationFailure: (await gateway.shared.condition()).configurationFailure,
    upstreams: await upstreamStates(c.var),
    algorithm: keys.ring.algorithm,
    keys: keys.ring.keys,
    keysFailure: keys.failure,
    certificate: listener.secure,
    store: store && (await storeState(store)),
    gatewayUrl: publicUrl,
    accessVersion: snapshot.version,
    accessStale: access.stale,
    revocationsStale: revocations.stale,
    revocationsFailure: revocations.failure,
    users: snapshot.users.size,
    administrators: snapshot.users
      .keys()
      .filter((name) => isAdministrator(snapshot, name))
      .take(NAMED)
      .toArray(),
    events: await history.events(),
    since: history.since,
    refreshing: refreshingOf(c),
  };
}

/** `GET /state`: what is in force and what has changed; for administrators. */
export async function showState(c: ConsoleRequest): Promise<Response> {
  const visitor = visitorOf(c);
  requireAdministrator(visitor.snapshot, visitor.actor);
  return sendPage(c, visitor, statePage(await stateViewOf(c)));
}
