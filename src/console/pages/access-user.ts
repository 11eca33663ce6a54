import type { EntryRole } from "../../access/roles.ts";
import type { Grant } from "../../access/snapshot.ts";
import { type Html, html, nothing } from "../../pages/html.ts";
import { placeOf } from "../changes.ts";
import type { UserRow } from "./access.ts";
import {
  accountMark,
  type ConsolePage,
  heading,
  narrowing,
  pathOf,
  roleBadge,
  table,
  until,
} from "./frame.ts";

/** What the page of one user shows. */
export interface UserPageView extends UserRow {
  readonly isAdministrator: boolean;
  /** Epoch milliseconds. */
  readonly now: number;
}

const rights: Readonly<Record<EntryRole, string>> = {
  Owner: "everything there, and every grant",
  DbAdmin: "rows and tables, and grants up to ReadWrite",
  ReadWrite: "reads and changes rows",
  ReadOnly: "reads rows",
  None: "nothing",
};

function entryActions(grant: Grant): Html {
  const { username, database, tables = [], expires } = grant;
  if (tables.length > 1)
    return html`<span class="hint">lists several tables: change it in the access file</span>`;
  const place = { user: username, database, table: tables[0] };
  const temporary = expires === undefined ? undefined : "yes";
  const what = html`<span class="unseen"> the entry for ${placeOf(grant)}</span>`;
  return html`<a href="${pathOf("/access/entry", { ...place, temporary })}">Change${what}</a> <a href="${pathOf("/access/end", place)}">End${what}</a>`;
}

function manage({ username, user }: UserPageView): Html {
  if (user === undefined) return nothing;
  const act = (action: string, label: string) =>
    html`<a class="button" href="${pathOf("/access/act", { user: username, action })}">${label}</a> `;
  return html`<h2>Account</h2><p class="actions">${act("password", "Set a new password")}${
    user.disabled ? act("enable", "Enable") : act("disable", "Disable")
  }${act("remove", "Remove")}</p>`;
}

function grants({ username, entries, now }: UserPageView): Html {
  if (entries.length === 0)
    return html`<p class="sheet empty">There is no grant yet: this user may do nothing.</p>`;
  return table(
    `Grants of ${username}`,
    ["Where", "Role", "Narrowed to", ["Until", "moment"], ["Action", "moment"]],
    entries.map((grant) => [
      html`<code>${placeOf(grant)}</code>`,
      html`${roleBadge(grant.role)}<span class="hint">${rights[grant.role]}</span>`,
      narrowing(grant),
      until(grant, now),
      entryActions(grant),
    ]),
  );
}

/** The page of one user. */
export function userPage(view: UserPageView): ConsolePage {
  const { username, user, isAdministrator } = view;
  const email =
    user?.email === undefined ? nothing : html`<p class="quiet"><bdi>${user.email}</bdi></p>`;
  const sessions = html`<a class="button" href="${pathOf("/sessions", { user: username })}">Sessions</a> `;
  const actions = html`${isAdministrator ? sessions : nothing}<a class="button" href="${pathOf("/access/check", { user: username })}">Would a query pass?</a> <a class="button primary" href="${pathOf("/access/entry", { user: username })}">Grant</a>`;
  return {
    title: username,
    place: "access",
    content: html`<p class="path"><a href="/access">Access</a></p>
${heading(html`<bdi>${username}</bdi> ${accountMark(user)}`, actions)}
${email}
<h2>Grants</h2>
${grants(view)}
${isAdministrator ? manage(view) : nothing}`,
  };
}
