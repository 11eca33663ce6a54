import { limitsInWords, writtenTime } from "../access/entry-view.ts";
import type { Grant, User } from "../access/grant.ts";
import type { EntryRole } from "../access/roles.ts";
import { type Html, html, nothing } from "../pages/html.ts";
import type { Failure } from "./changes.ts";

interface Reader {
  readonly csrf: string;
  readonly session: { readonly username: string };
  readonly isAdministrator: boolean;
  readonly isManager: boolean;
}

/** The sections of the console in menu order, with the readers who may open them. */
const places = [
  ["overview", "Overview", () => true],
  ["access", "Access", ({ isManager }) => isManager],
  ["approvals", "Approvals", () => true],
  ["audit", "Audit", ({ isManager }) => isManager],
  ["sessions", "Sessions", () => true],
  ["state", "State", ({ isAdministrator }) => isAdministrator],
] as const satisfies readonly [name: string, title: string, isFor: (reader: Reader) => boolean][];

export interface ConsolePage {
  readonly title: string;
  /** Undefined for a page outside the menu, such as an error. */
  readonly place?: (typeof places)[number][0];
  /** The path from which the page reloads itself. */
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

export function hidden(name: string, value: string): Html {
  return html`<input type="hidden" name="${name}" value="${value}">`;
}

const bareHeader = html`<header>${brand}</header>`;

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

/** Automatic refresh, which the reader can pause (WCAG 2.2.1). */
export interface Refreshing {
  readonly path: string;
  readonly isPaused: boolean;
  /** Epoch milliseconds. */
  readonly now: number;
}

export function refreshNote({ path, isPaused, now }: Refreshing): Html {
  const time = new Date(now).toISOString().slice(11, 19);
  return isPaused
    ? html`<p class="quiet">As of ${time} UTC; refreshing is paused. <a href="${path}">Resume</a></p>`
    : html`<p class="quiet">Last refreshed at ${time} UTC, every ${String(REFRESH_SECONDS)} seconds. <a href="${path}?refresh=off">Pause</a></p>`;
}

export function heading(title: string | Html, actions: Html = nothing): Html {
  const beside = actions === nothing ? nothing : html`<p class="actions">${actions}</p>`;
  return html`<div class="head"><h1>${title}</h1>${beside}</div>`;
}

export type Column = string | readonly [name: string, kind: "number" | "moment"];

type Row = readonly (Html | string)[];

/**
 * Words of this length may be broken in a narrow column; shorter ones are not broken on a wide
 * screen.
 */
const LONG_WORD = /[^\s-]{24}/;

/** A table that becomes a list of cards on narrow screens. */
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

/** Builds a path with parameters; undefined ones are omitted. */
export function pathOf(
  path: string,
  parameters: Readonly<Record<string, string | undefined>>,
): string {
  const query = new URLSearchParams();
  for (const [name, value] of Object.entries(parameters))
    if (value !== undefined) query.set(name, value);
  return `${path}?${query}`;
}

export function roleBadge(role: EntryRole): Html {
  return html`<span class="role ${role}">${role}</span>`;
}

/** Describes an entry's limits, except role and expiry. */
export function narrowing({ expires: _, ...grant }: Grant): Html {
  const words = limitsInWords(grant);
  return words === "" ? html`<span class="dim">not narrowed</span>` : html`${words}`;
}

/** How long an entry is valid. @param now epoch milliseconds */
export function until({ expires }: Grant, now: number): Html {
  if (expires === undefined) return html`<span class="dim">no end</span>`;
  const time = writtenTime(expires).replace("T", " ").replace("Z", " UTC");
  return expires > now ? html`${time}` : html`<span class="state bad">ended ${time}</span>`;
}

export function accountMark(user: User | undefined): Html {
  if (user === undefined) return html`<span class="hint">known to an external server</span>`;
  if (user.disabled) return html`<span class="state bad">disabled</span>`;
  return user.passwordHash === undefined ? html`<span class="hint">no password</span>` : nothing;
}

export type Fields = ReadonlyMap<string, string>;

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
  /** Values that the browser suggests; others may be typed. */
  readonly offered?: readonly string[] | undefined;
}

function notes({ failure }: Filled, { name, hint }: FieldOptions) {
  const wrong = failure?.fields?.get(name);
  const ids = [
    ...(wrong === undefined ? [] : [`${name}-wrong`]),
    ...(hint === undefined ? [] : [`${name}-hint`]),
  ];
  const described = ids.length === 0 ? nothing : html` aria-describedby="${ids.join(" ")}"`;
  // With several invalid fields, the browser focuses the first.
  const invalid = wrong === undefined ? nothing : html` aria-invalid="true" autofocus`;
  return {
    attributes: html`${described}${invalid}`,
    text: html`${wrong === undefined ? nothing : html`<span class="wrong" id="${name}-wrong">${wrong}</span>`}${hint === undefined ? nothing : html`<span class="hint" id="${name}-hint">${hint}</span>`}`,
  };
}

/** A one-line field. A password is never sent back to the browser. */
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

export function area(view: Filled, options: FieldOptions): Html {
  const { name, label } = options;
  const { attributes, text } = notes(view, options);
  return html`<div class="field"><label for="${name}">${label}</label>
<textarea id="${name}" name="${name}" rows="4" autocapitalize="none" spellcheck="false"${attributes}>${view.fields.get(name) ?? ""}</textarea>
${text}</div>`;
}

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

export function box({ fields }: Filled, { name, label }: FieldOptions): Html {
  const checked = fields.get(name) === "yes" ? html` checked` : nothing;
  return html`<label class="choice"><input type="checkbox" name="${name}" value="yes"${checked}>${label}</label>`;
}

/** Parses a comma-separated list such as `id, name`; a single `-` means no names. */
export function listedIn(text: string | undefined): string[] {
  return (text ?? "")
    .split(",")
    .map((one) => one.trim())
    .filter((one) => one !== "");
}

/** A check box per name. Checked ones are those that `listedIn` finds in the field's text. */
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

export const ownPassword: Html = passwordAgain(undefined);

/** Shows what failed at the last attempt and what another user has changed. */
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

export interface ChangingForm {
  readonly fields: Fields;
  readonly csrf: string;
  /** What the reader saw of the user, line by line. */
  readonly seen: readonly string[];
  readonly failure: Failure | undefined;
}

interface ChangingPage {
  readonly title: string;
  readonly heading: Html;
  /** Undefined for a new user. */
  readonly username?: string;
  readonly sentence?: string;
  readonly action: string;
  readonly form: Html;
  readonly button: Html;
}

export function seenList(username: string, seen: readonly string[]): Html {
  return html`<p><bdi>${username}</bdi> has now:</p><ul>${seen.map((line) => html`<li>${line}</li>`)}</ul>`;
}

/** A page with a form that asks for the reader's own password and is submitted once. */
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
