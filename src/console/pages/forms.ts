import { type Html, html, nothing } from "../../pages/html.ts";
import type { Failure } from "../changes.ts";
import { type ConsolePage, hidden, pathOf } from "./frame.ts";

/** What a form was filled in with, by the names of its fields. */
export type Fields = ReadonlyMap<string, string>;

interface FieldOptions {
  readonly name: string;
  readonly label: string;
  readonly hint?: string;
  readonly type?: string;
  readonly isRequired?: boolean;
  readonly autocomplete?: string;
}

/** A field with one line. A password is never shown again. */
export function field(fields: Fields, options: FieldOptions): Html {
  const { name, label, hint, type = "text", isRequired = false, autocomplete = "off" } = options;
  const value = type === "password" ? "" : (fields.get(name) ?? "");
  const required = isRequired ? html` required` : nothing;
  const described = hint === undefined ? nothing : html` aria-describedby="${name}-hint"`;
  return html`<div class="field"><label for="${name}">${label}</label>
<input id="${name}" name="${name}" type="${type}" value="${value}" autocomplete="${autocomplete}" autocapitalize="none" spellcheck="false"${required}${described}>
${hint === undefined ? nothing : html`<span class="hint" id="${name}-hint">${hint}</span>`}</div>`;
}

/** A field with several lines. */
export function area(fields: Fields, { name, label, hint = "" }: FieldOptions): Html {
  return html`<div class="field"><label for="${name}">${label}</label>
<textarea id="${name}" name="${name}" rows="4" autocapitalize="none" spellcheck="false" aria-describedby="${name}-hint">${fields.get(name) ?? ""}</textarea>
<span class="hint" id="${name}-hint">${hint}</span></div>`;
}

/** A field with a few values. */
export function choice(
  fields: Fields,
  { name, label }: FieldOptions,
  values: readonly string[],
): Html {
  const options = values.map(
    (value) =>
      html`<option${value === fields.get(name) ? html` selected` : nothing}>${value}</option>`,
  );
  return html`<div class="field"><label for="${name}">${label}</label><select id="${name}" name="${name}">${options}</select></div>`;
}

/** A box that is ticked or not. */
export function box(fields: Fields, { name, label }: FieldOptions): Html {
  const checked = fields.get(name) === "yes" ? html` checked` : nothing;
  return html`<label class="choice"><input type="checkbox" name="${name}" value="yes"${checked}>${label}</label>`;
}

/** The field for a password that somebody else is given. */
export function newPassword(label: string): Html {
  return field(new Map(), {
    name: "new_password",
    label,
    hint: "At least 8 characters; hand it over in private",
    type: "password",
    isRequired: true,
    autocomplete: "new-password",
  });
}

/** The field for the password of whoever is signed in. */
export const ownPassword: Html = html`<div class="field"><label for="own-password">Your own password, again</label>
<input id="own-password" name="password" type="password" autocomplete="current-password" required></div>`;

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
${ownPassword}
<div class="actions">${button} <a class="button" href="${back}">Cancel</a></div>
</form>`,
  };
}
