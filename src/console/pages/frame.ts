import { type Html, html, nothing } from "../../pages/html.ts";

/** The places of the console, in the order in which they are offered. */
export const places = {
  access: { path: "/access", name: "Access" },
  sessions: { path: "/sessions", name: "Sessions" },
  state: { path: "/state", name: "State" },
} as const;

/** A place of the console. */
export type PlaceName = keyof typeof places;

/** A page of the console: its title, where it belongs, and what stands in it. */
export interface ConsolePage {
  readonly title: string;
  /** Undefined for a page that belongs nowhere, such as an error. */
  readonly place?: PlaceName | undefined;
  readonly content: Html;
}

/** For whom a page is. */
export interface Reader {
  readonly csrf: string;
  readonly session: { readonly username: string };
  readonly isAdministrator: boolean;
  /** True if it may grant on some database. */
  readonly isManager: boolean;
}

/** The places that a reader is offered. */
function offered({ isAdministrator, isManager }: Reader): PlaceName[] {
  return [
    ...(isManager ? (["access"] as const) : []),
    "sessions",
    ...(isAdministrator ? (["state"] as const) : []),
  ];
}

function link(name: PlaceName, current: PlaceName | undefined): Html {
  const mark = name === current ? html` aria-current="page"` : nothing;
  return html`<a href="${places[name].path}"${mark}>${places[name].name}</a>`;
}

function header(reader: Reader, place: PlaceName | undefined): Html {
  return html`<header>
<a class="skip" href="#content">Skip to the content</a>
<div class="bar">
<span class="brand">Gatehouse</span>
<nav aria-label="Console">${offered(reader).map((name) => link(name, place))}</nav>
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

const bareHeader = html`<header><span class="brand">Gatehouse</span> console</header>`;

/** The whole document. @param reader undefined if nobody is signed in */
export function renderConsolePage(
  { title, place, content }: ConsolePage,
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

/** A note that a reader should not miss. */
export function alert(text: string | Html): Html {
  return html`<div class="note error" role="alert" id="error"><p>${text}</p></div>`;
}

/** A table that becomes a list of cards where there is no room for columns. */
export function table(
  label: string,
  head: readonly string[],
  rows: readonly (readonly (Html | string)[])[],
): Html {
  const heads = head.map((name) => html`<th scope="col" role="columnheader">${name}</th>`);
  const cells = (row: readonly (Html | string)[]) =>
    row.map(
      (cell, at) => html`<td role="cell" data-label="${head[at] ?? ""}"><div>${cell}</div></td>`,
    );
  return html`<table role="table" aria-label="${label}">
<thead role="rowgroup"><tr role="row">${heads}</tr></thead>
<tbody role="rowgroup">${rows.map((row) => html`<tr role="row">${cells(row)}</tr>`)}</tbody>
</table>`;
}
