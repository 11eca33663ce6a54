import type { AccessRules, Author } from "../access/access-rules.ts";
import { requireAdministrator } from "../access/administration.ts";
import {
  type AccessDiff,
  describeItem,
  diffSnapshots,
  type EffectChange,
  effectsOn,
} from "../access/diff.ts";
import type { AccessProblem } from "../access/parse.ts";
import { isAdministrator } from "../access/policy.ts";
import { groupOf } from "../access/roles.ts";
import type { Snapshot } from "../access/snapshot.ts";
import { epochSeconds } from "../clock.ts";
import { dateOf, type Html, html, type Part } from "../pages/html.ts";
import { version as release } from "../product.ts";
import { Refusal } from "../refusal.ts";
import type { StoreReplica } from "../store/open.ts";
import { counted } from "../suggestion.ts";
import { dim, empty, groupRows, hint, mark, roleBadge, table, userLink } from "./frame.ts";
import { type Console, type ConsoleRequest, refreshOf, sendPage, visitorOf } from "./visit.ts";

/** Limits: versions; and of each, the users compared, their changes, and names per kind of record. */
const VERSIONS = 50;
const USERS = 20;
const EFFECTS = 50;
const NAMES = 20;

const recordKinds = [
  ["usersAdded", "added"],
  ["usersRemoved", "removed with all grants"],
  ["usersChanged", "password, email, state, attributes or same_as changed"],
  ["groupsAdded", "group added"],
  ["groupsRemoved", "group removed with all grants"],
  ["groupsChanged", "members of the group changed"],
  ["boundariesAdded", "boundary added"],
  ["boundariesRemoved", "boundary removed"],
] as const;

function describeVersion(
  /** At epoch seconds; the author is undefined if the version does not record it. */
  origin: { at: number; version: string; author: Author | undefined },
  before: Snapshot,
  after: Snapshot,
  diff: AccessDiff,
) {
  const { grantsAdded, grantsRemoved, grantsRaised, grantsLowered, grantsChanged } = diff;
  const grants = [grantsAdded, grantsRemoved, grantsRaised, grantsLowered, grantsChanged].flat();
  const users = new Set([
    ...[...diff.usersAdded, ...diff.usersRemoved, ...diff.usersChanged],
    ...grants.map(({ username }) => username),
  ]);
  const effects = effectsOn([...users].slice(0, USERS), before, after, origin.at * 1000);
  return {
    ...origin,
    effects: effects.take(EFFECTS).toArray(),
    hasOthers: users.size > USERS,
    records: recordKinds
      .filter(([kind]) => diff[kind].length > 0)
      .map(([kind, label]) => {
        const names = diff[kind].slice(0, NAMES).map(describeItem);
        return { label, names, more: diff[kind].length - names.length };
      }),
  };
}

type LoadedVersion = ReturnType<typeof describeVersion>;

/** A loaded version, or a rejected file, at epoch seconds. */
export type AccessEvent = LoadedVersion | { at: number; problems: readonly AccessProblem[] };

async function readVersions({ store, replica }: StoreReplica): Promise<LoadedVersion[]> {
  const { versionsBack } = await import("../store/access-store.ts");
  const last: LoadedVersion[] = [];
  const { snapshot, position } = replica.state;
  const versions = versionsBack(store.database.query, { snapshot, position });
  for await (const { at, version, author, before, after } of versions) {
    const found = { at: Math.floor(at.getTime() / 1000), version: String(version), author };
    const diff = diffSnapshots(before, after);
    if (last.push(describeVersion(found, before, after, diff)) === VERSIONS) break;
  }
  return last;
}

/** Keeps the last versions of users and grants. @param log the store that has earlier versions */
export function openHistory(access: AccessRules, log: StoreReplica | undefined) {
  let events: readonly AccessEvent[] = [];
  let earlier: Promise<readonly LoadedVersion[]> | undefined;
  access.subscribe((event) => {
    const at = epochSeconds();
    if (event.kind === "failed") events = [{ at, problems: event.problems }, ...events];
    else {
      const { previous, snapshot, diff, author } = event;
      const origin = { at, version: snapshot.version, author };
      events = [describeVersion(origin, previous, snapshot, diff), ...events];
    }
    events = events.slice(0, VERSIONS);
  });
  return {
    /** Epoch seconds since when changes are known; undefined if a log has earlier ones. */
    since: log === undefined ? epochSeconds() : undefined,
    /** Newest first. @throws any error of the log */
    async events(): Promise<readonly AccessEvent[]> {
      if (log === undefined) return events;
      earlier ??= readVersions(log).catch((error) => {
        // The next caller reads again.
        earlier = undefined;
        throw error;
      });
      const read = await earlier;
      const known = new Set(events.map((event) => "version" in event && event.version));
      const before = read.filter(({ version }) => !known.has(version));
      return [...events, ...before].slice(0, VERSIONS);
    },
  };
}

function rightsOf({ gains, loses, limits, before, after }: EffectChange): Html {
  const written = (value: unknown) => (value === undefined ? "none" : JSON.stringify(value));
  const others = limits.map((key) =>
    hint(html`<code>${key}</code> ${written(before.limits[key])} to ${written(after.limits[key])}`),
  );
  return html`${gains.length > 0 && html`<span class="gain">+ ${gains.join(", ")}</span> `}${
    loses.length > 0 && html`<span class="loss">\u2212 ${loses.join(", ")}</span> `
  }${others}`;
}

const origins = { api: "", console: " (console)", cli: " (command line)", store: " (replica)" };

function versionRows({ version, at, author, effects, hasOthers, records }: LoadedVersion) {
  const name = html`<code>${version}</code>${hint(dateOf(at))}${
    author && hint("by ", html`<bdi>${author.name}</bdi>`, origins[author.kind])
  }`;
  const role = ({ role, entry }: EffectChange["before"]) =>
    entry === undefined ? dim("no grant") : roleBadge(role);
  const rows: Part[][] = [
    ...effects.map((change) => [
      userLink(change.username),
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
  const name = html`${mark(false, "Rejected")}${hint(dateOf(at))}`;
  const inForce = hint("the last valid state stayed in force");
  return [name, "", "", html`<ul class="plain">${list}</ul>${inForce}`];
}

/** Lists versions, newest first. @param since epoch seconds before which changes are unknown */
export function versionList(events: readonly AccessEvent[], since: number | undefined): Html {
  const start = since !== undefined && `${dateOf(since)}, when this gateway started`;
  if (events.length === 0) {
    return empty("No changes to users or grants", start ? ` since ${start}.` : " yet.");
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
      dateOf(created),
      duration(Math.max(0, epochSeconds() - created)),
      verifiesUntil === undefined ? dim("no end") : dateOf(verifiesUntil),
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
    dateOf(Math.floor(one.since.getTime() / 1000)),
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
    .filter((name) => isAdministrator(snapshot, { username: name }))
    .map((name) => (groupOf(name) === undefined ? name : `group ${groupOf(name)}`));
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
  html`<dt>Certificate</dt><dd>${secure.certificate.names}, until ${dateOf(Math.floor(secure.certificate.expires.getTime() / 1000))} ${inForce(secure.failure === undefined)}</dd>`
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
    ...{ title: "State", section: "State", refresh: refreshOf(c) },
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
