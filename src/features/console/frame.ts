import { limitsInWords } from "../../core/access/entry-view.ts";
import {
  type Grant,
  groupOf,
  type Holder,
  holderName,
  holderText,
  type Subject,
} from "../../core/access/grant.ts";
import { type EntryRole, isExternalUsername, splitNames } from "../../core/access/roles.ts";
import type { Snapshot } from "../../core/access/snapshot.ts";
import { type Html, html, type Part } from "../../core/base/html.ts";
import { counted } from "../../core/base/suggestion.ts";
import type { Revocations } from "../../core/identity/revocations.ts";
import { visibleJson } from "../approvals/preview.ts";
import { formatDate, offsetName, zoneInUse } from "./moment.ts";
import type { CurrentSession } from "./sessions.ts";

/** The sections in menu order, each with the property that a visitor needs to open it. */
const sections = {
  Overview: undefined,
  Access: "isManager",
  Approvals: undefined,
  Audit: "isManager",
  Sessions: undefined,
  State: "isAdministrator",
} as const;

export interface Visitor {
  readonly session: CurrentSession;
  readonly actor: Subject;
  readonly csrf: string;
  readonly snapshot: Snapshot;
  readonly isAdministrator: boolean;
  readonly isManager: boolean;
  /** True for a database on which the visitor may grant, and so may see grants and queries. */
  readonly maySee: (database: string) => boolean;
  readonly earliestIssue: Revocations["earliestIssue"];
}

export interface ConsolePage {
  readonly title: string;
  /** Undefined for a page outside the menu, such as an error. */
  readonly section?: keyof typeof sections;
  readonly path?: Html;
  readonly heading?: Html | undefined;
  readonly actions?: Part;
  /** Present for a page that refreshes itself. */
  readonly refresh?: { readonly path: string; readonly isPaused: boolean };
  readonly failure?: Failure | undefined;
  readonly asked?: string;
  readonly notice?: Html | undefined;
  readonly content: Html;
}

const brand = html`<span class="brand"><img src="/icon.svg" alt="" width="20" height="20">Gatehouse</span>`;

function header(visitor: Visitor, { section, asked }: ConsolePage): Html {
  const links = Object.entries(sections)
    .filter(([, right]) => !right || visitor[right])
    .map(
      ([name]) =>
        html`<a href="/${name.toLowerCase()}"${name === section && html` aria-current="page"`}>${name}</a>`,
    );
  return html`<header>
<a class="skip" href="#content">Skip to content</a>
<div class="bar">
${brand}
<nav aria-label="Console">${links}</nav>
${visitor.isManager && html`<form method="get" action="/search" class="find" role="search" aria-label="Console"><input type="search" name="q" value="${asked}" aria-label="Search" placeholder="User, table or request id" maxlength="264" autocomplete="off" autocapitalize="none" spellcheck="false"></form>`}
${postForm(
  visitor.csrf,
  "/sign-out",
  "who",
  html`<bdi>${visitor.session.username}</bdi><button class="link">Sign out</button>`,
)}
</div>
</header>`;
}

export function hidden(name: string, value: string): Html {
  return html`<input type="hidden" name="${name}" value="${value}">`;
}

/** A form with the token that shows that it comes from the console. */
export function postForm(csrf: string, action: string, style: string, content: Html): Html {
  return html`<form method="post" action="${action}" class="${style}">
${hidden("csrf", csrf)}${content}
</form>`;
}

export function renderConsolePage(page: ConsolePage, visitor?: Visitor): string {
  const { title, path, heading = title, actions, refresh, failure, notice, content } = page;
  return String(html`<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>${title} - Gatehouse console</title>
<link rel="stylesheet" href="/style.css">
<link rel="icon" href="/icon.svg" type="image/svg+xml">
${refresh?.isPaused === false && html`<meta http-equiv="refresh" content="${REFRESH_SECONDS}; url=${refresh.path}?refresh=auto">`}
</head>
<body${visitor && html` class="console"`}>
${visitor ? header(visitor, page) : html`<header>${brand}</header>`}
<main id="content" tabindex="-1">
${path && html`<p class="path">${path}</p>`}
<div class="head"><h1>${heading}</h1>${actions && html`<div class="actions">${actions}</div>`}</div>
${notice}${failure && failureNote(failure)}
${refresh && refreshNote(refresh)}
${content}
${visitor && zoneNote()}
</main>
</body>
</html>
`);
}

function zoneNote(): Html {
  const zone = zoneInUse();
  const offset = offsetName(Date.now());
  return html`<footer>Times are in ${zone}${zone !== offset && ` (${offset})`}. <a href="/sessions/zone">Change the time zone</a></footer>`;
}

const REFRESH_SECONDS = 30;

/** Lets the reader pause the refresh (WCAG 2.2.1). */
function refreshNote({ path, isPaused }: NonNullable<ConsolePage["refresh"]>): Html {
  const state = isPaused
    ? html`Refresh is paused. <a href="${path}">Resume</a>`
    : html`Refreshes every ${REFRESH_SECONDS} seconds. <a href="${path}?refresh=off">Pause</a>`;
  return html`<p class="quiet">Updated at ${formatDate(Date.now() / 1000, 19, 11)}. ${state}</p>`;
}

export function empty(...parts: Part[]): Html {
  return html`<p class="sheet empty">${parts}</p>`;
}

type Row = readonly Part[];
export type Column = string | readonly [name: string, kind: "number" | "moment"];

/** Longer words may be broken in a narrow column; shorter ones only on a narrow screen. */
const LONG_WORD = /[^\s-]{24}/;

/** @param none the text to show instead of a table without rows */
export function table(
  label: string,
  columns: readonly Column[],
  rows: readonly Row[],
  none?: Part,
): Html {
  if (rows.length === 0 && none !== undefined) return empty(none);
  const heads = columns.map((column) =>
    typeof column === "string" ? ([column, ""] as const) : column,
  );
  const cells = (row: Row) =>
    heads.map(([name, kind], at) => {
      const cell = html`${row[at]}`;
      const isLong = LONG_WORD.test(String(cell).replaceAll(/<[^>]*>/g, " "));
      return html`<td role="cell" class="${kind}${isLong && " long"}" data-label="${name}"><div>${cell}</div></td>`;
    });
  return html`<table role="table" aria-label="${label}">
<thead role="rowgroup"><tr role="row">${heads.map(([name, kind]) => html`<th scope="col" role="columnheader" class="${kind}">${name}</th>`)}</tr></thead>
<tbody role="rowgroup">${rows.map((row) => html`<tr role="row">${cells(row)}</tr>`)}</tbody>
</table>`;
}

/** Rows that belong together: only the first shows the name to everyone, the others to screen readers. */
export function groupRows(name: Part, again: Part, rows: readonly Row[]): Part[][] {
  const hiddenName = html`<span class="again">${again}</span>`;
  return rows.map((row, at) => [at === 0 ? name : hiddenName, ...row]);
}

type Parameters = Readonly<Record<string, string | undefined>>;

export function pathOf(path: string, parameters: Parameters): string {
  const given = Object.entries(parameters).flatMap(([name, value]) =>
    value === undefined ? [] : [[name, value]],
  );
  return given.length > 0 ? `${path}?${new URLSearchParams(given)}` : path;
}

export function userLink(holder: Holder): Html {
  return html`<a href="${userPath(holder)}"><bdi>${holderName(holder)}</bdi></a>`;
}

export function userPath(holder: Holder): string {
  return pathOf("/access/user", { user: holderText(holder) });
}

export function linkButton(label: Part, path: string, given: Parameters = {}, kind = ""): Html {
  return html`<a class="button${kind}" href="${pathOf(path, given)}">${label}</a> `;
}

/** Marks a state as good or bad by a sign as well as a color. */
export function mark(isGood: boolean, ...words: Part[]): Html {
  return span(`state ${isGood ? "good" : "bad"}`)(words);
}

function span(style: string) {
  return (...words: Part[]) => html`<span class="${style}">${words}</span>`;
}
export const hint = span("hint");
export const dim = span("dim");
export const unseen = span("unseen");

export function roleBadge(role: EntryRole): Html {
  return span(`role ${role}`)(role);
}

/** Text with names and values of others, isolated, and with invisible characters escaped. */
export function plainWords(text: string): Html {
  return html`<bdi>${visibleJson(text)}</bdi>`;
}

export function limitWords(limits: string): Part {
  return limits === "" ? dim("none") : plainWords(limits);
}

export function limitsOf({ expires: _, ...grant }: Grant): Part {
  return limitWords(limitsInWords(grant));
}

/** The moment of a `datetime-local` field in RFC 3339: browsers send no time zone, and seconds only if there are some. */
export function momentIn(text: string): string {
  const local = /^(\d{4}-\d\d-\d\dT\d\d:\d\d)(:\d\d(?:\.\d{1,3})?)?$/.exec(text);
  return local === null ? text : `${local[1]}${local[2] ?? ":00"}Z`;
}

/** When an entry expires. @param now epoch milliseconds */
export function expiry({ expires }: Grant, now: number): Part {
  if (expires === undefined) return dim("never");
  const time = formatDate(expires / 1000, 19);
  return expires > now ? time : mark(false, "expired ", time);
}

/** The state of a user's account, or the size of a group. */
export function holderMark({ users, groups }: Snapshot, holder: Holder): Html | undefined {
  const group = groupOf(holder);
  if (group !== undefined) {
    const members = groups.get(group)?.members;
    return hint(members ? counted(members.length, "member") : "no local members");
  }
  const username = holderText(holder);
  const user = users.get(username);
  if (user === undefined) return hint(isExternalUsername(username) ? "external user" : "no record");
  if (user.disabled) return mark(false, "disabled");
  return user.passwordHash === undefined ? hint("no password") : undefined;
}

export type Fields = ReadonlyMap<string, string>;

export interface FormState {
  readonly fields: Fields;
  readonly failure?: Failure | undefined;
}

interface FieldOptions {
  readonly name: string;
  readonly label: string;
  readonly hint?: string;
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

function notes({ failure }: FormState, { name, hint: help }: FieldOptions) {
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
export function field(view: FormState, options: FieldOptions): Html {
  const { name, type = "text", autocomplete = "off", offered = [], values } = options;
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
      : html`<input id="${name}" name="${name}" type="${type}" value="${value}" autocomplete="${autocomplete}" ${plain}${suggests && html` list="${name}-list"`}${options.more}${attributes}>`;
  const list =
    suggests &&
    html`<datalist id="${name}-list">${offered.map((one) => html`<option value="${one}"></option>`)}</datalist>`;
  return html`<div class="field"><label for="${name}">${options.label}</label>
${control}${list}
${text}</div>`;
}

export function checkbox(name: string, isChecked: boolean, label: Part): Html {
  return html`<label class="choice"><input type="checkbox" name="${name}" value="yes"${isChecked && html` checked`}>${label}</label>`;
}

/** Parses a comma-separated list such as `id, name`. */
export function parseList(text = ""): string[] {
  return splitNames(text).filter((one) => one !== "");
}

/** A check box per name, checked if the field's text lists it. */
export function boxes(view: FormState, options: FieldOptions, none?: string): Html {
  const { name, label, offered = [] } = options;
  const { attributes, text } = notes(view, options);
  const ticked = new Set(parseList(view.fields.get(name)));
  const names = [...new Set([...offered, ...ticked])].filter((one) => one !== "-");
  const box = (one: string, words: Html) => checkbox(`${name}:${one}`, ticked.has(one), words);
  return html`<fieldset class="field" id="${name}"${attributes}><legend>${label}</legend>
<div class="boxes">${names.map((one) => box(one, html`<code>${one}</code>`))}${none && box("-", html`<em>${none}</em>`)}</div>${text}</fieldset>`;
}

export function ownPassword(view: FormState = { fields: new Map() }): Html {
  return field(view, {
    name: "password",
    label: "Your password",
    type: "password",
    autocomplete: "current-password",
    more: required,
  });
}

function failureNote({ message, details: { changed } }: Failure): Html {
  const lines = (label: string, list: readonly string[]) =>
    list.length > 0 && html`<p>${label}</p><ul>${list.map((line) => html`<li>${line}</li>`)}</ul>`;
  return html`<div class="note error" role="alert"><p>${message}</p>${
    changed &&
    html`${lines("Removed:", changed.removed)}${lines("Added:", changed.added)}<p>Check the current state, then submit the form again.</p>`
  }</div>`;
}

export const statuses = [400, 401, 403, 404, 409, 429, 503] as const;

interface FailureDetails {
  readonly fields?: Fields;
  /** Lines of the user's state that have changed since the form was loaded. */
  readonly changed?: { readonly removed: readonly string[]; readonly added: readonly string[] };
}

export class Failure extends Error {
  readonly status: (typeof statuses)[number];
  readonly details: FailureDetails;

  constructor(status: Failure["status"], message: string, details: FailureDetails = {}) {
    super(message);
    this.status = status;
    this.details = details;
  }
}
