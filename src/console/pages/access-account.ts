import { roles } from "../../access/roles.ts";
import { html, nothing } from "../../pages/html.ts";
import { pathOf } from "./entries.ts";
import {
  type ChangingForm,
  changingForm,
  choice,
  type Fields,
  failureNote,
  field,
} from "./forms.ts";
import { type ConsolePage, hidden } from "./frame.ts";

/** What can happen to an account. */
export const actions = ["password", "disable", "enable", "remove"] as const;
export type Action = (typeof actions)[number];

/** What the page that asks shows. */
export interface ActView extends ChangingForm {
  readonly username: string;
  readonly action: Action;
}

const words: Readonly<Record<Action, readonly [title: string, sentence: string, button: string]>> =
  {
    password: [
      "Set a new password for",
      "Every token, app and session of the old password ends at once.",
      "Set this password",
    ],
    disable: [
      "Disable",
      "No login, and no token of this user is accepted, until somebody enables it again. Grants stay.",
      "Disable",
    ],
    enable: [
      "Enable",
      "The user may log in again, and tokens that have not expired count again.",
      "Enable",
    ],
    remove: [
      "Remove",
      "The record goes, and all its grants, for good. Every token ends.",
      "Remove for good",
    ],
  };

/** The page that asks once before something happens to an account. */
export function actPage(view: ActView): ConsolePage {
  const { username, action, failure, seen } = view;
  const [title, sentence, button] = words[action];
  const isSafe = action === "enable" || action === "password";
  const password = field(new Map(), {
    name: "new_password",
    label: "New password",
    hint: "At least 8 characters; hand it over in private",
    type: "password",
    isRequired: true,
    autocomplete: "new-password",
  });
  const back = pathOf("/access/user", { user: username });
  const form = html`${hidden("user", username)}${hidden("action", action)}
<p><bdi>${username}</bdi> has now:</p><ul>${seen.map((line) => html`<li>${line}</li>`)}</ul>
${action === "password" ? password : nothing}`;
  return {
    title: `${title} ${username}`,
    place: "access",
    content: html`<p class="path"><a href="/access">Access</a> / <a href="${back}"><bdi>${username}</bdi></a></p>
<h1>${title} <bdi>${username}</bdi></h1>
${failureNote(failure)}
<p>${sentence}</p>
${changingForm({ ...view, back }, "/access/act", form, html`<button class="${isSafe ? "primary" : "danger"}">${button}</button>`)}`,
  };
}

/** What the form for a new user shows. */
export interface NewUserView extends ChangingForm {
  readonly fields: Fields;
}

/** The page on which a user is added. */
export function newUserPage(view: NewUserView): ConsolePage {
  const { fields, failure } = view;
  const form = html`<div class="group">
${field(fields, { name: "user", label: "Username", hint: "1 to 64 of letters, digits, . _ - @", isRequired: true })}
${field(fields, { name: "email", label: "Email", hint: "Optional", type: "email" })}
${field(fields, { name: "database", label: "Database", hint: "A name, or * for every database", isRequired: true })}
${choice(fields, { name: "role", label: "Role" }, roles)}
</div>
${field(fields, { name: "new_password", label: "First password", hint: "At least 8 characters; hand it over in private", type: "password", isRequired: true, autocomplete: "new-password" })}`;
  return {
    title: "Add a user",
    place: "access",
    content: html`<p class="path"><a href="/access">Access</a></p>
<h1>Add a user</h1>
${failureNote(failure)}
${changingForm(view, "/access/new", form, html`<button class="primary">Add this user</button>`)}`,
  };
}
