import { requireAdministrator } from "../../core/access/administration.ts";
import { type EffectChange, limitChange } from "../../core/access/diff.ts";
import { holderName } from "../../core/access/grant.ts";
import { callerFor } from "../../core/access/groups.ts";
import { isAdministrator } from "../../core/access/policy.ts";
import { epochSeconds } from "../../core/base/clock.ts";
import { type Html, html, type Part } from "../../core/base/html.ts";
import { version as release } from "../../core/base/product.ts";
import { Refusal } from "../../core/base/refusal.ts";
import { counted } from "../../core/base/suggestion.ts";
import type { StoreReplica } from "../store/open.ts";
import { dim, empty, groupRows, hint, mark, roleBadge, table, userLink } from "./frame.ts";
import type { AccessEvent, LoadedVersion } from "./history.ts";
import { formatDate } from "./moment.ts";
import { type Console, type ConsoleRequest, refreshOf, sendPage, visitorOf } from "./visit.ts";

function rightsOf(change: EffectChange): Html {
  const { gains, loses, limits } = change;
  const others = limits.map((key) => hint(limitChange(change, key)));
  return html`${gains.length > 0 && html`<span class="gain">+ ${gains.join(", ")}</span> `}${
    loses.length > 0 && html`<span class="loss">\u2212 ${loses.join(", ")}</span> `
  }${others}`;
}

const origins = {
  api: "",
  console: " (console)",
  cli: " (command line)",
  file: " (file)",
  store: " (replica)",
};

function versionRows({ version, at, author, effects, hasOthers, records }: LoadedVersion) {
  const name = html`<code>${version}</code>${hint(formatDate(at))}${
    author && hint("by ", html`<bdi>${author.name}</bdi>`, origins[author.kind])
  }`;
  const role = ({ role, entry }: EffectChange["before"]) =>
    entry === undefined ? dim("no grant") : roleBadge(role);
  const rows: Part[][] = [
    ...effects.map((change) => [
      userLink(change.holder),
      html`<code>${change.place}</code>`,
      rightsOf(change),
      html`${role(change.before)} \u2192 ${role(change.after)}`,
    ]),
    ...records.map(({ label, names, more }) => [
      html`<bdi>${names.join(", ")}</bdi>${more > 0 && `, and ${more} more`}`,
      "",
      label,
    ]),
    ...(hasOthers ? [["and other users"]] : []),
  ];
  if (rows.length === 0) rows.push(["", "", dim("no change to users or grants")]);
  return groupRows(name, html`<code>${version}</code>`, rows);
}

function rejectedRow({ at, problems }: Exclude<AccessEvent, LoadedVersion>): Part[] {
  const list = problems.map(
    ({ line, reason }) => html`<li>${line !== undefined && `Line ${line}: `}${reason}</li>`,
  );
  const name = html`${mark(false, "Rejected")}${hint(formatDate(at))}`;
  const inForce = hint("the last valid state stayed in force");
  return [name, "", "", html`<ul class="plain">${list}</ul>${inForce}`];
}

/** Lists versions, newest first. @param since epoch seconds before which changes are unknown */
export function versionList(events: readonly AccessEvent[], since: number | undefined): Html {
  const start = since !== undefined && html`${formatDate(since)}, when this gateway started`;
  if (events.length === 0) {
    return empty("No changes to users or grants", start ? html` since ${start}.` : " yet.");
  }
  const rows = events.flatMap((one) => ("version" in one ? versionRows(one) : [rejectedRow(one)]));
  const earlier = start
    ? html`Changes before ${start}, are in the audit log.`
    : html`Run <code>gatehouse access history</code> to list earlier versions.`;
  return html`${table("Versions of users and grants", ["Version", "User", "Where", "Rights", "Role"], rows)}<p class="quiet">${earlier}</p>`;
}

const DAY = 86_400;
const SOON = 14 * DAY;

function duration(seconds: number): string {
  const units = Object.entries({ day: DAY, hour: 3600, minute: 60 });
  const [name, size] = units.find(([, one]) => seconds >= one) ?? ["second", 1];
  return counted(Math.floor(seconds / size), name);
}

type State = Awaited<ReturnType<typeof conditionOf>>;

function upstreamTable({ upstreams }: State): Html {
  return table(
    "Upstreams",
    ["Upstream", "Databases", "State", "Circuit", ["Active", "number"], ["Waiting", "number"]],
    upstreams.map(({ name, databases, isUp, isLive, busy, waiting }) => [
      html`<code>${name}</code>`,
      databases === undefined ? "all others" : html`<code>${databases.join(", ")}</code>`,
      mark(isUp, isUp ? "Reachable" : "Unreachable"),
      mark(isLive, isLive ? "Closed" : "Open: queries go elsewhere"),
      busy,
      waiting,
    ]),
  );
}

function keyTable({ gateway: { keys } }: Console): Html {
  const { algorithm } = keys.ring;
  return table(
    "Signing keys",
    ["Key", "State", ["Created", "moment"], ["Age", "number"], ["Verifies until", "moment"]],
    keys.ring.keys.map(({ kid, state, created, verifiesUntil }) => [
      html`<code>${kid}</code>`,
      state === "signs" ? html`<strong>Signs</strong> with ${algorithm}` : "Verifies",
      formatDate(created),
      duration(Math.max(0, epochSeconds() - created)),
      verifiesUntil === undefined ? dim("no end") : formatDate(verifiesUntil),
    ]),
  );
}

function replicaTable({ own, lag, status }: NonNullable<State["store"]>): Html {
  if (status === undefined) {
    const name = html`This replica is <code>${own}</code>.`;
    return empty("The store is unreachable, so the other replicas are unknown. ", name);
  }
  const { version, form, readableForm } = status;
  const rows = status.replicas.map((one) => [
    html`<code>${one.name}</code>${one.name === own && html` <strong>(this one)</strong>`}`,
    one.applied,
    Math.max(0, version - one.applied),
    one.rest > 0 ? `in ${duration(one.rest)}` : mark(false, duration(-one.rest), " ago"),
    one.form,
    formatDate(Math.floor(one.since.getTime() / 1000)),
  ]);
  const head = ["Replica", ["Applied", "number"], ["Behind", "number"]] as const;
  const rest = ["Lease ends", ["Format", "number"], ["Since", "moment"]] as const;
  return html`${table("Replicas", [...head, ...rest], rows)}
<p class="quiet">The store is at version ${version}, format ${form}. This release reads formats up to ${readableForm}.${lag > 0 && ` This replica is ${counted(lag, "version")} behind.`}</p>`;
}

/** Lists the gateway's problems in sentences. */
export function summary({ gateway, listener }: Console, state: State): Html {
  const { access, revocations, keys } = gateway;
  const { store, upstreams } = state;
  const expires = listener.secure?.certificate.expires;
  const left = expires === undefined ? SOON : expires.getTime() / 1000 - epochSeconds();
  const rejected = {
    Configuration: state.configurationFailure,
    "Access file": access.stale ? "see the versions below" : undefined,
    "Revocations file": revocations.stale ? (revocations.failure ?? "unreadable") : undefined,
    "Signing keys": keys.failure,
    "TLS certificate": listener.secure?.failure,
  };
  const found = [
    ...Object.entries(rejected).map(
      ([name, reason]) =>
        reason !== undefined && `${name} rejected: ${reason}. The last valid state is in force.`,
    ),
    left <= 0 && "The TLS certificate has expired.",
    left > 0 && left < SOON && `The TLS certificate expires in ${duration(left)}.`,
    store?.isReachable === false &&
      "The store is unreachable. Changes fail now, and queries will fail soon.",
    ...upstreams.map(
      ({ name, isUp }) =>
        !isUp && `${name} is unreachable. Its queries fail or use another upstream.`,
    ),
  ].filter((one) => one !== false);
  if (found.length === 0)
    return html`<div class="note done"><p><strong>Everything is in order.</strong></p></div>`;
  return html`<div class="note error"><p><strong>This needs your attention:</strong></p><ul>${found.map((one) => html`<li>${one}</li>`)}</ul></div>`;
}

const NAMED = 8;

function facts({ gateway, listener, issuers }: Console): Html {
  const { access, revocations, keys, publicUrl } = gateway;
  const { secure } = listener;
  const { snapshot } = access;
  const administrators = snapshot.grants
    .keys()
    .filter((holder) => isAdministrator(snapshot, callerFor(holder)))
    .map(holderName);
  const providers = Object.entries(issuers?.states ?? {}).map((one) => one.join(": "));
  const names = [...administrators.take(NAMED)].join(", ");
  const inForce = (isCurrent: boolean) =>
    mark(isCurrent, isCurrent ? "Current" : "Older than on disk");
  return html`<dl class="sheet">
<dt>Gateway</dt><dd><bdi>${publicUrl}</bdi>, version ${release}</dd>
<dt>Access version</dt><dd><code>${snapshot.version}</code> ${inForce(!access.stale)}</dd>
<dt>Users</dt><dd>${snapshot.users.size}</dd>
<dt>Administrators</dt><dd>${names === "" ? "none" : html`<bdi>${names}</bdi>`}</dd>
${providers.length > 0 && html`<dt>Identity providers</dt><dd><bdi>${providers.join(", ")}</bdi></dd>`}
<dt>Revocations</dt><dd>${inForce(!revocations.stale)}</dd>
<dt>Signing keys</dt><dd>${inForce(keys.failure === undefined)}</dd>
${
  secure &&
  html`<dt>Certificate</dt><dd>${secure.certificate.names}, until ${formatDate(Math.floor(secure.certificate.expires.getTime() / 1000))} ${inForce(secure.failure === undefined)}</dd>`
}
</dl>`;
}

async function storeState({ store, replica }: StoreReplica) {
  const { name: own, isReachable, lag } = replica;
  // Loaded on demand, because a gateway without a store does not need it.
  const { readStatus } = await import("../store/open.ts");
  const status = await readStatus(store.database).catch((error) => {
    if (!(error instanceof Refusal)) throw error;
    return undefined;
  });
  return { own, isReachable: status !== undefined && isReachable, lag, status };
}

export async function conditionOf({ gateway, store }: Console) {
  const { routing, shared } = gateway;
  const upstreams = routing.targets.map(async (target) => {
    const { busy, waiting, isLive } = target;
    const databases = routing.databasesAt(target);
    return { name: target.name, databases, busy, waiting, isLive, isUp: await target.isUp() };
  });
  return {
    configurationFailure: (await shared.condition()).configurationFailure,
    upstreams: await Promise.all(upstreams),
    store: store && (await storeState(store)),
  };
}

export async function showState(c: ConsoleRequest): Promise<Response> {
  const visitor = visitorOf(c);
  requireAdministrator(visitor.snapshot, visitor.actor);
  const { history } = c.var;
  const state = await conditionOf(c.var);
  return sendPage(c, {
    title: "State",
    section: "State",
    refresh: refreshOf(c),
    content: html`${summary(c.var, state)}
<h2>In force</h2>
${facts(c.var)}
<h2>Upstreams</h2>
${upstreamTable(state)}
${state.store && html`<h2>Replicas</h2>${replicaTable(state.store)}`}
<h2>Signing keys</h2>
${keyTable(c.var)}
<h2>Versions of users and grants</h2>
${versionList(await history.events(), history.since)}`,
  });
}
