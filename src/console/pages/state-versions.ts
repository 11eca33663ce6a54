import type { EffectChange } from "../../access/effect-diff.ts";
import { dateOf, type Html, html, nothing } from "../../pages/html.ts";
import type { AccessEvent, ChangedNames, FailedReload, LoadedVersion } from "../access-history.ts";
import { pathOf, roleBadge } from "./entries.ts";
import { table } from "./frame.ts";

/** What became of users and grants, version by version. */

const labels: Readonly<Record<ChangedNames["kind"], string>> = {
  usersAdded: "Users added",
  usersRemoved: "Users removed",
  usersChanged: "Another password, email, state or attributes",
  boundariesAdded: "Boundaries added",
  boundariesRemoved: "Boundaries removed",
};

function namesOf({ kind, names, more }: ChangedNames): Html {
  const rest = more > 0 ? `, and ${more} more` : "";
  return html`<dt>${labels[kind]}</dt><dd><bdi>${names.join(", ")}</bdi>${rest}</dd>`;
}

function written(value: unknown): string {
  return value === undefined ? "none" : JSON.stringify(value);
}

/** What somebody has got or lost, by signs and colour both. */
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

function effectRow(change: EffectChange): (Html | string)[] {
  const { username, place, before, after } = change;
  return [
    html`<a href="${pathOf("/access/user", { user: username })}"><bdi>${username}</bdi></a>`,
    html`<code>${place}</code>`,
    rightsOf(change),
    html`${standing(before)} \u2192 ${standing(after)}`,
  ];
}

function authorOf({ author }: LoadedVersion): Html {
  if (author === undefined) return nothing;
  const ways = { api: "", console: ", in the console", cli: ", by command", store: ", a replica" };
  return html` by <bdi>${author.name}</bdi>${ways[author.kind]}`;
}

function loaded(one: LoadedVersion): Html {
  const { version, at, effects, hasOthers, records } = one;
  const isSilent = effects.length === 0 && records.length === 0;
  const rows = table(
    `Who gains and loses what by version ${version}`,
    ["User", "Where", "Gains and loses", "Role"],
    effects.map(effectRow),
  );
  return html`<section><h3>Version <code>${version}</code> <span class="quiet">${dateOf(at)}${authorOf(one)}</span></h3>
${effects.length === 0 ? nothing : rows}
${records.length === 0 ? nothing : html`<dl class="sheet">${records.map(namesOf)}</dl>`}
${hasOthers ? html`<p class="quiet">More users are not shown: <code>gatehouse access diff</code> compares all of them.</p>` : nothing}
${isSilent ? html`<p class="quiet">Nobody gains or loses anything.</p>` : nothing}</section>`;
}

function refused({ at, problems }: FailedReload): Html {
  const list = problems.map(
    ({ line, reason }) =>
      html`<li>${line === undefined ? nothing : html`Line ${String(line)}: `}${reason}</li>`,
  );
  return html`<section class="note error"><h3>Refused <span class="quiet">${dateOf(at)}</span></h3><p>The last good state stayed in force.</p><ul>${list}</ul></section>`;
}

/** The versions, the newest first. @param since before when nothing is known here */
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
  const list = events.map((one) => (one.kind === "loaded" ? loaded(one) : refused(one)));
  return html`${list}<p class="quiet">${before}</p>`;
}
