import { limitsInWords, writtenTime } from "../access/entry-view.ts";
import type { Grant, User } from "../access/grant.ts";
import type { EntryRole } from "../access/roles.ts";
import { type Html, html, type Part } from "../pages/html.ts";
import type { Failure } from "./changes.ts";
import type { ConsoleRequest, Visitor } from "./visit.ts";

/** The sections of the console in menu order, each with what a visitor must be to open it. */
const places = {
  Overview: undefined,
  Access: "isManager",
  Approvals: undefined,
  Audit: "isManager",
  Sessions: undefined,
  State: "isAdministrator",
} as const;

export interface ConsolePage {
  readonly title: string;
  /** Undefined for a page outside the menu, such as an error. */
  readonly place?: keyof typeof places;
  readonly refresh?: string | undefined;
  readonly failure?: Failure | undefined;
  readonly content: Html;
}

const brand = html`<span class="brand"><img src="/icon.svg" alt="" width="20" height="20">Gatehouse</span>`;

function header(visitor: Visitor, place: ConsolePage["place"]): Html {
  const offered = Object.entries(places).filter(([, right]) => !right || visitor[right]);
  const links = offered.map(
    ([name]) =>
      html`<a href="/${name.toLowerCase()}"${name === place && html` aria-current="page"`}>${name}</a>`,
  );
  return html`<header>
<a class="skip" href="#content">Skip to the content</a>
<div class="bar">
${brand}
<nav aria-label="Console">${links}</nav>
<form method="post" action="/sign-out" class="who">
${hidden("csrf", visitor.csrf)}
<bdi>${visitor.session.username}</bdi>
<button class="link">Sign out</button>
</form>
</div>
</header>`;
}

export function hidden(name: string, value: string): Html {
  return html`<input type="hidden" name="${name}" value="${value}">`;
}

export function renderConsolePage(page: ConsolePage, visitor?: Visitor): string {
  const { title, place, content, refresh } = page;
  return String(html`<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>${title} - Gatehouse console</title>
<link rel="stylesheet" href="/style.css">
<link rel="icon" href="/icon.svg" type="image/svg+xml">
${refresh && html`<meta http-equiv="refresh" content="${REFRESH_SECONDS}; url=${refresh}?refresh=auto">`}
</head>
<body${visitor && html` class="console"`}>
${visitor ? header(visitor, place) : html`<header>${brand}</header>`}
<main id="content" tabindex="-1">
${content}
</main>
</body>
</html>
`);
}

const REFRESH_SECONDS = 30;

/** Makes a page refresh itself, which the reader can pause (WCAG 2.2.1). */
export function refreshing({ req }: ConsoleRequest) {
  const { path } = req;
  const time = new Date().toISOString().slice(11, 19);
  const isPaused = req.query("refresh") === "off";
  const note = isPaused
    ? html`<p class="quiet">As of ${time} UTC; refreshing is paused. <a href="${path}">Resume</a></p>`
    : html`<p class="quiet">Last refreshed at ${time} UTC, every ${REFRESH_SECONDS} seconds. <a href="${path}?refresh=off">Pause</a></p>`;
  return { note, refresh: isPaused ? undefined : path };
}

export function heading(title: Part, actions?: Html): Html {
  return html`<div class="head"><h1>${title}</h1>${actions && html`<p class="actions">${actions}</p>`}</div>`;
}

export function empty(...parts: Part[]): Html {
  return html`<p class="sheet empty">${parts}</p>`;
}

type Row = readonly Part[];
export type Column = string | readonly [name: string, kind: "number" | "moment"];

/** Longer words may be broken in a narrow column; shorter ones only on a narrow screen. */
const LONG_WORD = /[^\s-]{24}/;

export function table(label: string, columns: readonly Column[], rows: readonly Row[]): Html {
  const classOf = (kind: string) => kind !== "" && html` class="${kind}"`;
  const heads = columns.map((column) => {
    const [name, kind = ""] = typeof column === "string" ? [column] : column;
    return { name, kind };
  });
  const cells = (row: Row) =>
    heads.map(({ name, kind }, at) => {
      const cell = html`${row[at]}`;
      const isLong = LONG_WORD.test(String(cell).replaceAll(/<[^>]*>/g, " "));
      const style = classOf(isLong ? `${kind} long`.trim() : kind);
      return html`<td role="cell"${style} data-label="${name}"><div>${cell}</div></td>`;
    });
  return html`<table role="table" aria-label="${label}">
<thead role="rowgroup"><tr role="row">${heads.map(({ name, kind }) => html`<th scope="col" role="columnheader"${classOf(kind)}>${name}</th>`)}</tr></thead>
<tbody role="rowgroup">${rows.map((row) => html`<tr role="row">${cells(row)}</tr>`)}</tbody>
</table>`;
}

type Parameters = Readonly<Record<string, string | undefined>>;

export function pathOf(path: string, parameters: Parameters): string {
  const query = new URLSearchParams();
  for (const [name, value] of Object.entries(parameters))
    if (value !== undefined) query.set(name, value);
  return query.size > 0 ? `${path}?${query}` : path;
}

export function userLink(user: string): Html {
  return html`<a href="${pathOf("/access/user", { user })}"><bdi>${user}</bdi></a>`;
}

export function linkButton(label: Part, path: string, given: Parameters = {}, kind = ""): Html {
  return html`<a class="button${kind}" href="${pathOf(path, given)}">${label}</a> `;
}

/** Marks a state as good or bad, never by color only. */
export function mark(isGood: boolean, ...words: Part[]): Html {
  return html`<span class="state ${isGood ? "good" : "bad"}">${words}</span>`;
}

export function hint(...words: Part[]): Html {
  return html`<span class="hint">${words}</span>`;
}

/** Text for screen readers only. */
export function unseen(...words: Part[]): Html {
  return html`<span class="unseen">${words}</span>`;
}

export function roleBadge(role: EntryRole): Html {
  return html`<span class="role ${role}">${role}</span>`;
}

export function narrowing({ expires: _, ...grant }: Grant): Html {
  return html`${limitsInWords(grant) || html`<span class="dim">not narrowed</span>`}`;
}

/** How long an entry is valid. @param now epoch milliseconds */
export function until({ expires }: Grant, now: number): Html {
  if (expires === undefined) return html`<span class="dim">no end</span>`;
  const time = writtenTime(expires).replace("T", " ").replace("Z", " UTC");
  return expires > now ? html`${time}` : mark(false, "ended ", time);
}

export function accountMark(user: User | undefined): Html | undefined {
  if (user === undefined) return hint("known to an external server");
  if (user.disabled) return mark(false, "disabled");
  return user.passwordHash === undefined ? hint("no password") : undefined;
}

export type Fields = ReadonlyMap<string, string>;

export interface Filled {
  readonly fields: Fields;
  readonly failure?: Failure | undefined;
}

interface FieldOptions {
  readonly name: string;
  readonly label: string;
  readonly hint?: string;
  readonly id?: string;
  /** Of an input, or `area` for several lines. */
  readonly type?: string;
  /** The values of a list, each with its label if that differs. */
  readonly values?: readonly (string | readonly [value: string, label: string])[];
  readonly more?: Html;
  readonly autocomplete?: string;
  /** Values that the browser suggests; others may be typed. */
  readonly offered?: readonly string[];
}

export const required = html` required`;

function notes({ failure }: Filled, { name, hint: help }: FieldOptions) {
  const wrong = failure?.details.fields?.get(name);
  const ids = [wrong && `${name}-wrong`, help && `${name}-hint`].filter(Boolean).join(" ");
  // With several invalid fields, the browser focuses the first.
  const invalid = wrong && html` aria-invalid="true" autofocus`;
  return {
    attributes: html`${ids && html` aria-describedby="${ids}"`}${invalid}`,
    text: html`${wrong && html`<span class="wrong" id="${name}-wrong">${wrong}</span>`}${help && html`<span class="hint" id="${name}-hint">${help}</span>`}`,
  };
}

/** A field with its label. A password is never sent back to the browser. */
export function field(view: Filled, options: FieldOptions): Html {
  const { name, id = name, type = "text", autocomplete = "off", offered = [], values } = options;
  const { attributes, text } = notes(view, options);
  const value = type === "password" ? "" : view.fields.get(name);
  const suggests = offered.length > 0;
  const optionOf = (one: string, label = one) =>
    html`<option${label !== one && html` value="${one}"`}${one === value && html` selected`}>${label}</option>`;
  const plain = html`autocapitalize="none" spellcheck="false"`;
  const control = values
    ? html`<select id="${name}" name="${name}"${attributes}>${values.map((one) => (typeof one === "string" ? optionOf(one) : optionOf(...one)))}</select>`
    : type === "area"
      ? html`<textarea id="${name}" name="${name}" rows="4" ${plain}${attributes}>${value}</textarea>`
      : html`<input id="${id}" name="${name}" type="${type}" value="${value}" autocomplete="${autocomplete}" ${plain}${suggests && html` list="${name}-list"`}${options.more}${attributes}>`;
  const list =
    suggests &&
    html`<datalist id="${name}-list">${offered.map((one) => html`<option value="${one}"></option>`)}</datalist>`;
  return html`<div class="field"><label for="${id}">${options.label}</label>
${control}${list}
${text}</div>`;
}

export function checkbox(name: string, isChecked: boolean, label: Part): Html {
  return html`<label class="choice"><input type="checkbox" name="${name}" value="yes"${isChecked && html` checked`}>${label}</label>`;
}

/** Parses a comma-separated list such as `id, name`; a single `-` means no names. */
export function listedIn(text = ""): string[] {
  const names = text.split(",").map((one) => one.trim());
  return names.filter((one) => one !== "");
}

/** A check box per name. Checked ones are those that `listedIn` finds in the field's text. */
export function boxes(view: Filled, options: FieldOptions, none?: string): Html {
  const { name, label, offered = [] } = options;
  const { attributes, text } = notes(view, options);
  const ticked = new Set(listedIn(view.fields.get(name)));
  const names = [...new Set([...offered, ...ticked])].filter((one) => one !== "-");
  const box = (one: string, words: Html) => checkbox(`${name}:${one}`, ticked.has(one), words);
  return html`<fieldset class="field" id="${name}"${attributes}><legend>${label}</legend>
<div class="boxes">${names.map((one) => box(one, html`<code>${one}</code>`))}${none && box("-", html`<em>${none}</em>`)}</div>${text}</fieldset>`;
}

/** Joins the check boxes of a form: `columns:id` and `columns:name` become `columns`. */
export function gatherBoxes(form: Fields): Fields {
  const gathered = new Map<string, string>();
  for (const [key, value] of form) {
    const [, name = key, one] = /^(\w+):(.+)$/s.exec(key) ?? [];
    const before = gathered.get(name);
    gathered.set(name, one === undefined ? value : before ? `${before}, ${one}` : one);
  }
  return gathered;
}

export function ownPassword(view: Filled = { fields: new Map() }): Html {
  return field(view, {
    ...{ name: "password", id: "own-password", label: "Your own password, again" },
    ...{ type: "password", autocomplete: "current-password", more: required },
  });
}

export function failureNote(failure: Failure | undefined): Html | undefined {
  if (failure === undefined) return undefined;
  const { changed } = failure.details;
  const lines = (label: string, list: readonly string[]) =>
    list.length > 0 && html`<p>${label}</p><ul>${list.map((line) => html`<li>${line}</li>`)}</ul>`;
  return html`<div class="note error" role="alert"><p>${failure.message}</p>${
    changed &&
    html`${lines("Gone:", changed.gone)}${lines("New:", changed.come)}<p>Look at what is there now, and send the form again if you still mean it.</p>`
  }</div>`;
}
