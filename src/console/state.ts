import type { AccessRules, Author } from "../access/access-rules.ts";
import { requireAdministrator } from "../access/administration.ts";
import { type AccessDiff, diffSnapshots, type EffectChange, effectsOn } from "../access/diff.ts";
import type { AccessProblem } from "../access/parse.ts";
import { isAdministrator, type Snapshot } from "../access/snapshot.ts";
import { epochSeconds } from "../clock.ts";
import { withoutPassword } from "../config/addresses.ts";
import { hasOwnEngine, ownDatabaseUrl } from "../gateway/own-engine.ts";
import { dateOf, type Html, html, type Part } from "../pages/html.ts";
import { version as release } from "../product.ts";
import { Refusal } from "../refusal.ts";
import type { StoreReplica } from "../store/open.ts";
import { counted } from "../suggestion.ts";
import { empty, heading, hint, mark, refreshing, roleBadge, table, userLink } from "./frame.ts";
import { type Console, type ConsoleRequest, sendPage, visitorOf } from "./visit.ts";

/** Versions kept, and what is kept of each: users compared, their differences, names per kind. */
const REMEMBERED = 50;
const USERS = 20;
const EFFECTS = 50;
const NAMES = 20;

const recordKinds = [
  ["usersAdded", "added"],
  ["usersRemoved", "removed, with all grants"],
  ["usersChanged", "another password, email, state or attributes"],
  ["boundariesAdded", "boundary added"],
  ["boundariesRemoved", "boundary removed"],
] as const;

function firstUsersIn(diff: AccessDiff): string[] {
  const { boundariesAdded: _, boundariesRemoved: __, ...lists } = diff;
  const users = new Set<string>();
  for (const names of Object.values(lists)) {
    for (const name of names) {
      if (users.size > USERS) break;
      // A grant reads `user database role`.
      users.add(name.split(" ", 1)[0] ?? "");
    }
  }
  return [...users];
}

function describeVersion(
  /** At epoch seconds; the author is undefined if the version does not record it. */
  version: { at: number; version: string; author: Author | undefined },
  before: Snapshot,
  after: Snapshot,
  diff: AccessDiff,
) {
  const users = firstUsersIn(diff);
  const effects = effectsOn(users.slice(0, USERS), before, after, version.at * 1000);
  return {
    ...version,
    effects: effects.take(EFFECTS).toArray(),
    hasOthers: users.length > USERS,
    records: recordKinds
      .filter(([kind]) => diff[kind].length > 0)
      .map(([kind, label]) => {
        const names = diff[kind].slice(0, NAMES);
        return { label, names, more: diff[kind].length - names.length };
      }),
  };
}

type LoadedVersion = ReturnType<typeof describeVersion>;

/** A version in force, or a file that was refused, at epoch seconds. */
export type AccessEvent = LoadedVersion | { at: number; problems: readonly AccessProblem[] };

async function readVersions({ store, replica }: StoreReplica): Promise<LoadedVersion[]> {
  const { versionsBack } = await import("../store/access-versions.ts");
  const last: LoadedVersion[] = [];
  const { snapshot, position } = replica.state;
  const versions = versionsBack(store.database.query, { snapshot, position });
  for await (const { at, version, author, before, after } of versions) {
    const found = { at: Math.floor(at.getTime() / 1000), version: String(version), author };
    const diff = diffSnapshots(before, after);
    if (last.push(describeVersion(found, before, after, diff)) === REMEMBERED) break;
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
      const found = { at, version: snapshot.version, author };
      events = [describeVersion(found, previous, snapshot, diff), ...events];
    }
    events = events.slice(0, REMEMBERED);
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
      return [...events, ...before].slice(0, REMEMBERED);
    },
  };
}

/** Rights gained and lost, marked by signs as well as colors. */
function rightsOf({ gains, loses, limits, before, after }: EffectChange): Html {
  const written = (value: unknown) => (value === undefined ? "none" : JSON.stringify(value));
  const others = limits.map((key) =>
    hint(html`<code>${key}</code> ${written(before.limits[key])} to ${written(after.limits[key])}`),
  );
  return html`${gains.length > 0 && html`<span class="gain">+ ${gains.join(", ")}</span> `}${
    loses.length > 0 && html`<span class="loss">\u2212 ${loses.join(", ")}</span> `
  }${others}`;
}

const ways = { api: "", console: ", in the console", cli: ", by command", store: ", a replica" };

function loaded({ version, at, author, effects, hasOthers, records }: LoadedVersion): Part[][] {
  const name = html`<code>${version}</code>${hint(dateOf(at))}${
    author && hint("by ", html`<bdi>${author.name}</bdi>`, ways[author.kind])
  }`;
  const again = html`<span class="again"><code>${version}</code></span>`;
  const standing = ({ role, entry }: EffectChange["before"]) =>
    entry === undefined ? html`<span class="dim">no grant</span>` : roleBadge(role);
  const cells: Part[][] = [
    ...effects.map((change) => [
      userLink(change.username),
      html`<code>${change.place}</code>`,
      rightsOf(change),
      html`${standing(change.before)} \u2192 ${standing(change.after)}`,
    ]),
    ...records.map(({ label, names, more }) => [
      html`<bdi>${names.join(", ")}</bdi>${more > 0 && `, and ${more} more`}`,
      "",
      label,
    ]),
    ...(hasOthers ? [["and others"]] : []),
  ];
  if (cells.length === 0)
    cells.push(["", "", html`<span class="dim">no change to users or grants</span>`]);
  return cells.map((row, index) => [index === 0 ? name : again, ...row]);
}

function refused({ at, problems }: Exclude<AccessEvent, LoadedVersion>): Part[] {
  const list = problems.map(
    ({ line, reason }) => html`<li>${line !== undefined && `Line ${line}: `}${reason}</li>`,
  );
  const stayed = hint("the last good state stayed in force");
  const name = html`${mark(false, "Refused")}${hint(dateOf(at))}`;
  return [name, "", "", html`<ul class="plain">${list}</ul>${stayed}`];
}

/** Lists versions, newest first. @param since epoch seconds before which changes are unknown */
export function versionList(events: readonly AccessEvent[], since: number | undefined): Html {
  if (events.length === 0) {
    const sentence =
      since === undefined
        ? "Nobody has changed users or grants yet."
        : `Nobody has changed users or grants since ${dateOf(since)}, when this gateway started.`;
    return empty(sentence);
  }
  const before =
    since === undefined
      ? html`What came before is listed by <code>gatehouse access history</code>.`
      : html`What came before ${dateOf(since)}, when this gateway started, is in the audit log.`;
  const rows = events.flatMap((one) => ("version" in one ? loaded(one) : [refused(one)]));
  const head = ["Version", "User", "Where", "Gains and loses", "Role"];
  return html`${table("Versions of users and grants", head, rows)}<p class="quiet">${before}</p>`;
}

const DAY = 86_400;
const SOON = 14 * DAY;

function spanOf(seconds: number): string {
  const units = Object.entries({ day: DAY, hour: 3600, minute: 60 });
  const [name, size] = units.find(([, one]) => seconds >= one) ?? ["second", 1];
  return counted(Math.floor(seconds / size), name);
}

type State = Awaited<ReturnType<typeof conditionOf>>;

function upstreamTable({ upstreams }: State): Html {
  return table(
    "Databases behind the gateway",
    ["Where", "Databases", "State", "Circuit", ["Queries now", "number"], ["Waiting", "number"]],
    upstreams.map(({ name, databases, isUp, isLive, busy, waiting }) => [
      html`<code>${name}</code>`,
      databases === undefined ? "all others" : html`<code>${databases.join(", ")}</code>`,
      mark(isUp, isUp ? "Answers" : "Does not answer"),
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
    ["Key", "State", ["Made", "moment"], ["Age", "number"], ["Verifies until", "moment"]],
    keys.ring.keys.map(({ kid, state, created, verifiesUntil }) => [
      html`<code>${kid}</code>`,
      state === "signs" ? html`<strong>Signs</strong> by ${algorithm}` : "Verifies",
      dateOf(created),
      spanOf(Math.max(0, epochSeconds() - created)),
      verifiesUntil === undefined ? html`<span class="dim">no end</span>` : dateOf(verifiesUntil),
    ]),
  );
}

function replicas({ own, lag, status }: NonNullable<State["store"]>): Html {
  if (status === undefined)
    return empty(
      html`The store does not answer: what replicas there are is not known. This one is <code>${own}</code>.`,
    );
  const { version, form, readableForm } = status;
  const rows = status.replicas.map((one) => [
    html`<code>${one.name}</code>${one.name === own && html` <strong>(this one)</strong>`}`,
    one.applied,
    Math.max(0, version - one.applied),
    one.rest > 0 ? `in ${spanOf(one.rest)}` : mark(false, spanOf(-one.rest), " ago"),
    one.form,
    dateOf(Math.floor(one.since.getTime() / 1000)),
  ]);
  const head = ["Replica", ["Applied", "number"], ["Behind", "number"]] as const;
  const rest = ["Lease ends", ["Form", "number"], ["Since", "moment"]] as const;
  return html`${table("Replicas", [...head, ...rest], rows)}
<p class="quiet">The store is at version ${version}, in form ${form}; this release reads forms up to ${readableForm}.${lag > 0 && ` This replica has ${lag} versions to apply.`}</p>`;
}

export function summary({ gateway, listener }: Console, state: State): Html {
  const { access, revocations, keys } = gateway;
  const { configurationFailure, store, upstreams } = state;
  const reason = revocations.failure === undefined ? "" : `: ${revocations.failure}`;
  const expires = listener.secure?.certificate.expires;
  const left = expires === undefined ? SOON : expires.getTime() / 1000 - epochSeconds();
  const found = [
    configurationFailure !== undefined &&
      `The configuration was refused: ${configurationFailure}. The last good one is in force.`,
    access.stale &&
      "The access file was refused, for the reason below: the last good state is in force.",
    revocations.stale &&
      `The revocations file was refused${reason}. The last good state is in force.`,
    keys.failure !== undefined &&
      `The signing keys were refused: ${keys.failure}. The last good ones are in force.`,
    listener.secure?.failure !== undefined &&
      `The TLS certificate was refused: ${listener.secure.failure}. The last good one is served.`,
    left <= 0 && "The TLS certificate has expired.",
    left > 0 && left < SOON && `The TLS certificate expires in ${spanOf(left)}.`,
    store?.isReachable === false &&
      "The store does not answer: nothing can be changed, and soon nothing is decided.",
    ...upstreams.map(
      ({ name, isUp }) =>
        !isUp && `${name} does not answer: queries for it are refused, or go to another.`,
    ),
  ];
  if (!found.some(Boolean))
    return html`<div class="note done"><p><strong>Everything is in order.</strong></p></div>`;
  return html`<div class="note error"><p><strong>This needs your attention:</strong></p><ul>${found.map((one) => one && html`<li>${one}</li>`)}</ul></div>`;
}

const NAMED = 8;

function facts({ gateway, listener }: Console): Html {
  const { access, revocations, keys, publicUrl } = gateway;
  const { secure } = listener;
  const { snapshot } = access;
  const administrators = snapshot.users.keys().filter((name) => isAdministrator(snapshot, name));
  const names = [...administrators.take(NAMED)].join(", ");
  const inForce = (isGood: boolean, bad: string) => mark(isGood, isGood ? "In force" : bad);
  return html`<dl class="sheet">
<dt>Gateway</dt><dd><bdi>${publicUrl}</bdi>, version ${release}</dd>
<dt>Access version</dt><dd><code>${snapshot.version}</code> ${inForce(!access.stale, "An older state than on disk")}</dd>
<dt>Users</dt><dd>${snapshot.users.size}</dd>
<dt>Administrators</dt><dd>${names === "" ? "none" : html`<bdi>${names}</bdi>`}</dd>
<dt>Revocations</dt><dd>${inForce(!revocations.stale, "An older state than on disk")}</dd>
<dt>Signing keys</dt><dd>${inForce(keys.failure === undefined, "Other than those that are held")}</dd>
${
  secure &&
  html`<dt>Certificate</dt><dd>${secure.certificate.names}, until ${dateOf(Math.floor(secure.certificate.expires.getTime() / 1000))} ${inForce(secure.failure === undefined, "Other than on disk")}</dd>`
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

export async function conditionOf({ gateway, loaded, store }: Console) {
  const { routing, shared } = gateway;
  const upstreams = routing.targets.map(async (target) => {
    const { busy, waiting, isLive } = target;
    const databases = routing.databasesAt(target);
    // The embedded engine listens on a private socket whose name means nothing to users.
    const isOwnEngine = databases === undefined && hasOwnEngine(loaded);
    const name = isOwnEngine ? withoutPassword(ownDatabaseUrl(loaded)) : target.name;
    return { name, databases, busy, waiting, isLive, isUp: await target.isUp() };
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
  const { note, refresh } = refreshing(c);
  return sendPage(c, {
    ...{ title: "State", place: "State", refresh },
    content: html`${heading("State")}
${note}
${summary(c.var, state)}
<h2>In force</h2>
${facts(c.var)}
<h2>Databases</h2>
${upstreamTable(state)}
${state.store && html`<h2>Replicas</h2>${replicas(state.store)}`}
<h2>Signing keys</h2>
${keyTable(c.var)}
<h2>Versions of users and grants</h2>
${versionList(await history.events(), history.since)}`,
  });
}
