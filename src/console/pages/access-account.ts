import { roles } from "../../access/roles.ts";
import { html, nothing } from "../../pages/html.ts";
import { type ChangingForm, changingPage, choice, field, newPassword, seenList } from "./forms.ts";
import { type ConsolePage, hidden } from "./frame.ts";

/** What can happen to an account. */
export const actions = ["password", "disable", "enable", "remove"] as const;
export type Action = (typeof actions)[number];

const words: Readonly<Record<Action, readonly [title: string, sentence: string, button: string]>> =
  {
    password: [
      "Set a new password for",
      "Every token, app and session of the old password ends at once.",
      "Set this password",
    ],
    disable: [
      "Disable",
      "Every token, app and session ends for good. Nobody logs in as this user until it is enabled again. Grants stay.",
      "Disable",
    ],
    enable: [
      "Enable",
      "The user may log in again. Tokens, apps and sessions from before stay ended.",
      "Enable",
    ],
    remove: [
      "Remove",
      "The record goes, and all its grants, for good. Every token ends.",
      "Remove for good",
    ],
  };

/** The page that asks once before something happens to an account. */
export function actPage(view: ChangingForm, username: string, action: Action): ConsolePage {
  const [title, sentence, button] = words[action];
  const isSafe = action === "enable" || action === "password";
  return changingPage(view, {
    ...{ username, sentence, title: `${title} ${username}`, action: "/access/act" },
    heading: html`${title} <bdi>${username}</bdi>`,
    form: html`${hidden("user", username)}${hidden("action", action)}
${seenList(username, view.seen)}
${action === "password" ? newPassword(view, "New password") : nothing}`,
    button: html`<button class="${isSafe ? "primary" : "danger"}">${button}</button>`,
  });
}

/** The page on which a user is added. */
export function newUserPage(view: ChangingForm): ConsolePage {
  return changingPage(view, {
    ...{ title: "Add a user", heading: html`Add a user`, action: "/access/new" },
    form: html`<div class="group">
${field(view, { name: "user", label: "Username", hint: "1 to 64 of letters, digits, . _ - @", isRequired: true })}
${field(view, { name: "email", label: "Email", hint: "Optional", type: "email" })}
${field(view, { name: "database", label: "Database", hint: "A name, or * for every database", isRequired: true })}
${choice(view, { name: "role", label: "Role" }, roles)}
</div>
${newPassword(view, "First password")}`,
    button: html`<button class="primary">Add this user</button>`,
  });
}
