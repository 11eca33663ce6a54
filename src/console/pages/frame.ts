import { limitsInWords, writtenTime } from "../../access/entry-view.ts";
import type { EntryRole } from "../../access/roles.ts";
import type { Grant, User } from "../../access/snapshot.ts";
import { type Html, html, nothing } from "../../pages/html.ts";

/** For whom a page is. */
interface Reader {
  readonly csrf: string;
  readonly session: { readonly username: string };
  readonly isAdministrator: boolean;
  /** True if it may grant on some database. */
  readonly isManager: boolean;
}

/** The places of the console, in the order in which they are offered, and to whom each is. */
const places = [
  ["overview", "Overview", () => true],
  ["access", "Access", ({ isManager }) => isManager],
  ["approvals", "Approvals", () => true],
  ["audit", "Audit", ({ isManager }) => isManager],
  ["sessions", "Sessions", () => true],
  ["state", "State", ({ isAdministrator }) => isAdministrator],
] as const satisfies readonly [name: string, title: string, isFor: (reader: Reader) => boolean][];

/** A page of the console: its title, where it belongs, and what stands in it. */
export interface ConsolePage {
  readonly title: string;
  /** Undefined for a page that belongs nowhere, such as an error. */
  readonly place?: (typeof places)[number][0];
  /** The path under which the page loads itself again. */
  readonly refresh?: string | undefined;
  readonly content: Html;
}

const brand = html`<span class="brand"><img src="/icon.svg" alt="" width="20" height="20">Gatehouse</span>`;

function header(reader: Reader, place: ConsolePage["place"]): Html {
  const offered = places.filter(([, , isFor]) => isFor(reader));
  const current = html` aria-current="page"`;
  const links = offered.map(
    ([name, title]) => html`<a href="/${name}"${name === place ? current : nothing}>${title}</a>`,
  );
  return html`<header>
<a class="skip" href="#content">Skip to the content</a>
<div class="bar">
${brand}
<nav aria-label="Console">${links}</nav>
<form method="post" action="/sign-out" class="who">
${hidden("csrf", reader.csrf)}
<bdi>${reader.session.username}</bdi>
<button class="link">Sign out</button>
</form>
</div>
</header>`;
}

/** A hidden field of a form. */
export function hidden(name: string, value: string): Html {
  return html`<input type="hidden" name="${name}" value="${value}">`;
}

const bareHeader = html`<header>${brand}</header>`;

/** The whole document. @param reader undefined if nobody is signed in */
export function renderConsolePage(
  { title, place, content, refresh }: ConsolePage,
  reader: Reader | undefined,
): string {
  const layout = reader === undefined ? nothing : html` class="console"`;
  return String(html`<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>${title} - Gatehouse console</title>
<link rel="stylesheet" href="/style.css">
<link rel="icon" href="/icon.svg" type="image/svg+xml">
${refresh === undefined ? nothing : html`<meta http-equiv="refresh" content="${String(REFRESH_SECONDS)}; url=${refresh}?refresh=auto">`}
</head>
<body${layout}>
${reader === undefined ? bareHeader : header(reader, place)}
<main id="content" tabindex="-1">
${content}
</main>
</body>
</html>
`);
}

const REFRESH_SECONDS = 30;

/** Whether a page refreshes itself, which its reader may pause (WCAG 2.2.1). */
export interface Refreshing {
  readonly path: string;
  readonly isPaused: boolean;
  /** Epoch milliseconds. */
  readonly now: number;
}

/** Says when the page was loaded, and pauses or resumes its refreshing. */
export function refreshNote({ path, isPaused, now }: Refreshing): Html {
  const time = new Date(now).toISOString().slice(11, 19);
  return isPaused
    ? html`<p class="quiet">As of ${time} UTC; refreshing is paused. <a href="${path}">Resume</a></p>`
    : html`<p class="quiet">Last refreshed at ${time} UTC, every ${String(REFRESH_SECONDS)} seconds. <a href="${path}?refresh=off">Pause</a></p>`;
}

/** The heading of a page, with what can be done there beside it. */
export function heading(title: string | Html, actions: Html = nothing): Html {
  const beside = actions === nothing ? nothing : html`<p class="actions">${actions}</p>`;
  return html`<div class="head"><h1>${title}</h1>${beside}</div>`;
}

/** A column of a table: its name, and what stands in it where that is not any text. */
export type Column = string | readonly [name: string, kind: "number" | "moment"];

/** A row's cells, one a column. */
type Row = readonly (Html | string)[];

/** A word that may be broken where its column is narrow; others never are on a wide screen. */
const LONG_WORD = /[^\s-]{24}/;

/** A table that becomes a list of cards where there is no room for columns. */
export function table(label: string, columns: readonly Column[], rows: readonly Row[]): Html {
  const heads = columns.map((column) => {
    const [name, kind = ""] = typeof column === "string" ? [column] : column;
    return { name, kind };
  });
  const classOf = (kind: string) => (kind === "" ? nothing : html` class="${kind}"`);
  const cells = (row: Row) =>
    heads.map(({ name, kind }, at) => {
      const cell = row[at] ?? "";
      const isLong = LONG_WORD.test(String(cell).replaceAll(/<[^>]*>/g, " "));
      const style = classOf(isLong ? `${kind} long`.trim() : kind);
      return html`<td role="cell"${style} data-label="${name}"><div>${cell}</div></td>`;
    });
  return html`<table role="table" aria-label="${label}">
<thead role="rowgroup"><tr role="row">${heads.map(({ name, kind }) => html`<th scope="col" role="columnheader"${classOf(kind)}>${name}</th>`)}</tr></thead>
<tbody role="rowgroup">${rows.map((row) => html`<tr role="row">${cells(row)}</tr>`)}</tbody>
</table>`;
}

/** Entries as every page shows them. */

/** A path with parameters; those that are undefined are left out. */
export function pathOf(
  path: string,
  parameters: Readonly<Record<string, string | undefined>>,
): string {
  const query = new URLSearchParams();
  for (const [name, value] of Object.entries(parameters))
    if (value !== undefined) query.set(name, value);
  return `${path}?${query}`;
}

/** A role, which looks the same wherever it stands. */
export function roleBadge(role: EntryRole): Html {
  return html`<span class="role ${role}">${role}</span>`;
}

/** What an entry says besides its role and its end, in words. */
export function narrowing({ expires: _, ...grant }: Grant): Html {
  const words = limitsInWords(grant);
  return words === "" ? html`<span class="dim">not narrowed</span>` : html`${words}`;
}

/** How long an entry holds. @param now epoch milliseconds */
export function until({ expires }: Grant, now: number): Html {
  if (expires === undefined) return html`<span class="dim">no end</span>`;
  const time = writtenTime(expires).replace("T", " ").replace("Z", " UTC");
  return expires > now ? html`${time}` : html`<span class="state bad">ended ${time}</span>`;
}

/** What there is to know of an account at a glance. */
export function accountMark(user: User | undefined): Html {
  if (user === undefined) return html`<span class="hint">known to an external server</span>`;
  if (user.disabled) return html`<span class="state bad">disabled</span>`;
  return user.passwordHash === undefined ? html`<span class="hint">no password</span>` : nothing;
}
