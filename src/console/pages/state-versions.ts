import type { EffectChange } from "../../access/diff.ts";
import { dateOf, type Html, html, nothing } from "../../pages/html.ts";
import type { AccessEvent, ChangedNames, FailedReload, LoadedVersion } from "../access-history.ts";
import { pathOf, roleBadge, table } from "./frame.ts";

/** What became of users and grants, version by version. */

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
  const rows = events.flatMap((one) => (one.kind === "loaded" ? loaded(one) : [refused(one)]));
  const head = ["Version", "User", "Where", "Gains and loses", "Role"];
  return html`${table("Versions of users and grants", head, rows)}<p class="quiet">${before}</p>`;
}
