import { type Html, html, nothing } from "../../pages/html.ts";
import type { Failure } from "../changes.ts";
import { type ConsolePage, hidden, pathOf } from "./frame.ts";

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
