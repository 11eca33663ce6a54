import { limitsInWords, writtenTime } from "../access/entry-view.ts";
import type { Grant, User } from "../access/grant.ts";
import type { EntryRole } from "../access/roles.ts";
import { type Html, html, nothing } from "../pages/html.ts";
import type { Failure } from "./changes.ts";

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

/** What a form was filled in with, by the names of its fields. */
export type Fields = ReadonlyMap<string, string>;

/** What a form was filled in with, and what was wrong with it. */
interface Filled {
  readonly fields: Fields;
  readonly failure?: Failure | undefined;
}

interface FieldOptions {
  readonly name: string;
  readonly label: string;
  readonly hint?: string;
  readonly type?: string;
  readonly isRequired?: boolean;
  readonly autocomplete?: string;
  /** Values that the browser offers; others may be typed. */
  readonly offered?: readonly string[] | undefined;
}

/** The hint and the error message of a field, and the attributes that refer to them. */
function notes({ failure }: Filled, { name, hint }: FieldOptions) {
  const wrong = failure?.fields?.get(name);
  const ids = [
    ...(wrong === undefined ? [] : [`${name}-wrong`]),
    ...(hint === undefined ? [] : [`${name}-hint`]),
  ];
  const described = ids.length === 0 ? nothing : html` aria-describedby="${ids.join(" ")}"`;
  // The browser focuses the first of them.
  const invalid = wrong === undefined ? nothing : html` aria-invalid="true" autofocus`;
  return {
    attributes: html`${described}${invalid}`,
    text: html`${wrong === undefined ? nothing : html`<span class="wrong" id="${name}-wrong">${wrong}</span>`}${hint === undefined ? nothing : html`<span class="hint" id="${name}-hint">${hint}</span>`}`,
  };
}

/** A field with one line. A password is never shown again. */
export function field(view: Filled, options: FieldOptions): Html {
  const { name, label, type = "text", isRequired = false, autocomplete = "off" } = options;
  const { offered = [] } = options;
  const value = type === "password" ? "" : (view.fields.get(name) ?? "");
  const required = isRequired ? html` required` : nothing;
  const { attributes, text } = notes(view, options);
  const list =
    offered.length === 0
      ? nothing
      : html`<datalist id="${name}-list">${offered.map((one) => html`<option value="${one}"></option>`)}</datalist>`;
  return html`<div class="field"><label for="${name}">${label}</label>
<input id="${name}" name="${name}" type="${type}" value="${value}" autocomplete="${autocomplete}" autocapitalize="none" spellcheck="false"${offered.length === 0 ? nothing : html` list="${name}-list"`}${required}${attributes}>${list}
${text}</div>`;
}

/** A field with several lines. */
export function area(view: Filled, options: FieldOptions): Html {
  const { name, label } = options;
  const { attributes, text } = notes(view, options);
  return html`<div class="field"><label for="${name}">${label}</label>
<textarea id="${name}" name="${name}" rows="4" autocapitalize="none" spellcheck="false"${attributes}>${view.fields.get(name) ?? ""}</textarea>
${text}</div>`;
}

/** A field with a few values. */
export function choice(view: Filled, options: FieldOptions, values: readonly string[]): Html {
  const { name, label } = options;
  const { attributes, text } = notes(view, options);
  const all = values.map(
    (value) =>
      html`<option${value === view.fields.get(name) ? html` selected` : nothing}>${value}</option>`,
  );
  return html`<div class="field"><label for="${name}">${label}</label><select id="${name}" name="${name}"${attributes}>${all}</select>
${text}</div>`;
}

/** A box that is ticked or not. */
export function box({ fields }: Filled, { name, label }: FieldOptions): Html {
  const checked = fields.get(name) === "yes" ? html` checked` : nothing;
  return html`<label class="choice"><input type="checkbox" name="${name}" value="yes"${checked}>${label}</label>`;
}

/** Values as a text field holds them: `id, name`; a lone `-` stands for none of them. */
export function listedIn(text: string | undefined): string[] {
  return (text ?? "")
    .split(",")
    .map((one) => one.trim())
    .filter((one) => one !== "");
}

/** A box for each of several names: `listedIn` what the field would hold as text. */
export function boxes(view: Filled, options: FieldOptions, none?: string): Html {
  const { name, label, offered = [] } = options;
  const { attributes, text } = notes(view, options);
  const ticked = new Set(listedIn(view.fields.get(name)));
  const names = [...new Set([...offered, ...ticked])].filter((one) => one !== "-");
  const known = [...names, ...(none === undefined ? [] : ["-"])];
  const list = known.map(
    (one) =>
      html`<label class="choice"><input type="checkbox" name="${name}:${one}" value="yes"${ticked.has(one) ? html` checked` : nothing}>${one === "-" ? html`<em>${none ?? ""}</em>` : html`<code>${one}</code>`}</label>`,
  );
  return html`<fieldset class="field" id="${name}"${attributes}><legend>${label}</legend>
<div class="boxes">${list}</div>${text}</fieldset>`;
}

/** Puts the boxes of a form together again: `columns:id` and `columns:name` to `columns`. */
export function gatherBoxes(form: Fields): Fields {
  const gathered = new Map<string, string>();
  for (const [key, value] of form) {
    const [, name = key, one] = /^(\w+):(.+)$/s.exec(key) ?? [];
    const before = gathered.get(name);
    gathered.set(name, one === undefined ? value : before ? `${before}, ${one}` : one);
  }
  return gathered;
}

/** The field for a password that somebody else is given. */
export function newPassword(view: Filled, label: string): Html {
  return field(view, {
    name: "new_password",
    label,
    hint: "At least 8 characters; hand it over in private",
    type: "password",
    isRequired: true,
    autocomplete: "new-password",
  });
}

function passwordAgain(failure: Failure | undefined): Html {
  const { attributes, text } = notes(
    { fields: new Map(), failure },
    { name: "password", label: "" },
  );
  return html`<div class="field"><label for="own-password">Your own password, again</label>
<input id="own-password" name="password" type="password" autocomplete="current-password" required${attributes}>${text}</div>`;
}

/** The field for the password of whoever is signed in. */
export const ownPassword: Html = passwordAgain(undefined);

/** What went wrong the last time, and what somebody else has changed. */
export function failureNote(failure: Failure | undefined): Html {
  if (failure === undefined) return nothing;
  const { message, changed } = failure;
  const lines = (label: string, list: readonly string[]) =>
    list.length === 0
      ? nothing
      : html`<p>${label}</p><ul>${list.map((line) => html`<li>${line}</li>`)}</ul>`;
  return html`<div class="note error" role="alert"><p>${message}</p>${
    changed === undefined
      ? nothing
      : html`${lines("Gone:", changed.gone)}${lines("New:", changed.come)}<p>Look at what is there now, and send the form again if you still mean it.</p>`
  }</div>`;
}

/** What a form that changes something was filled in with, and what it carries besides. */
export interface ChangingForm {
  readonly fields: Fields;
  readonly csrf: string;
  /** What its reader saw of the user, line by line. */
  readonly seen: readonly string[];
  readonly failure: Failure | undefined;
}

/** What the page of such a form says. */
interface ChangingPage {
  readonly title: string;
  readonly heading: Html;
  /** Whom it is about; undefined for somebody new. */
  readonly username?: string;
  readonly sentence?: string;
  readonly action: string;
  readonly form: Html;
  readonly button: Html;
}

/** What a user has now, in a form that would change it. */
export function seenList(username: string, seen: readonly string[]): Html {
  return html`<p><bdi>${username}</bdi> has now:</p><ul>${seen.map((line) => html`<li>${line}</li>`)}</ul>`;
}

/** The page of a form that asks for the reader's own password, and is sent once. */
export function changingPage(
  { csrf, seen, failure }: ChangingForm,
  { title, heading, username, sentence, action, form, button }: ChangingPage,
): ConsolePage {
  const back = username === undefined ? "/access" : pathOf("/access/user", { user: username });
  const user =
    username === undefined ? nothing : html` / <a href="${back}"><bdi>${username}</bdi></a>`;
  return {
    title,
    place: "access",
    content: html`<p class="path"><a href="/access">Access</a>${user}</p>
<h1>${heading}</h1>
${failureNote(failure)}
${sentence === undefined ? nothing : html`<p>${sentence}</p>`}
<form method="post" action="${action}" class="sheet narrow">
${hidden("csrf", csrf)}${hidden("seen", seen.join("\n"))}
${form}
${passwordAgain(failure)}
<div class="actions">${button} <a class="button" href="${back}">Cancel</a></div>
</form>`,
  };
}
