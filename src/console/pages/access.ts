import { writtenTime } from "../../access/entry-view.ts";
import { limitsInWords } from "../../access/entry-words.ts";
import type { Grant, User } from "../../access/snapshot.ts";
import { type Html, html, nothing } from "../../pages/html.ts";
import { placeOf } from "../changes.ts";
import { type ConsolePage, table } from "./frame.ts";

/** A user and its entries. */
export interface UserRow {
  readonly username: string;
  /** Undefined for a user of an external authorization server. */
  readonly user: User | undefined;
  readonly entries: readonly Grant[];
}

/** What the page of users and grants shows. */
export interface AccessView {
  readonly user: string;
  readonly database: string;
  readonly users: readonly UserRow[];
  /** The name to go on after; undefined if all are shown. */
  readonly next: string | undefined;
  readonly accessVersion: string;
}

/** What the page of one user shows. */
export interface UserPageView extends UserRow {
  readonly isAdministrator: boolean;
  /** Epoch milliseconds. */
  readonly now: number;
}

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

/** What an entry says besides its role and its end, in words. */
function narrowing({ expires: _, ...grant }: Grant): string {
  return limitsInWords(grant) || "-";
}

function until({ expires }: Grant, now = Date.now()): Html {
  if (expires === undefined) return html`no end`;
  const time = writtenTime(expires);
  return expires > now ? html`${time}` : html`<span class="state bad">ended ${time}</span>`;
}

function stateOf(user: User | undefined): Html {
  if (user === undefined) return html`<span class="hint">known to an external server</span>`;
  if (user.disabled) return html`<span class="state bad">disabled</span>`;
  return user.passwordHash === undefined ? html`<span class="hint">no password</span>` : nothing;
}

function rows({ username, user, entries }: UserRow): (Html | string)[][] {
  const name = html`<span><a href="${pathOf("/access/user", { user: username })}"><bdi>${username}</bdi></a> ${stateOf(user)}</span>`;
  if (entries.length === 0) return [[name, "-", "no grant", "-", "-"]];
  return entries.map((grant) => [
    name,
    html`<code>${placeOf(grant)}</code>`,
    grant.role,
    narrowing(grant),
    until(grant),
  ]);
}

function filter({ user, database }: AccessView): Html {
  return html`<form method="get" action="/access" class="tools" role="search">
<div class="field"><label for="user">User contains</label><input id="user" name="user" value="${user}" maxlength="128" autocapitalize="none" spellcheck="false"></div>
<div class="field"><label for="database">Reaches the database</label><input id="database" name="database" value="${database}" maxlength="63" autocapitalize="none" spellcheck="false"></div>
<button>Show</button>
</form>`;
}

/** The page of users and grants. */
export function accessPage(view: AccessView): ConsolePage {
  const { users, next, user, database, accessVersion } = view;
  const more =
    next === undefined
      ? nothing
      : html`<p class="actions"><a class="button" href="${pathOf("/access", { user, database, after: next })}">More users</a></p>`;
  const list =
    users.length === 0
      ? html`<p class="sheet empty">Nobody fits whom you may manage. ${user === "" ? nothing : html`<a href="${pathOf("/access/entry", { user })}">Grant something to <bdi>${user}</bdi></a>, or l`}${user === "" ? "L" : ""}eave a field empty to see more.</p>`
      : table(
          "Users and grants",
          ["User", "Where", "Role", "Narrowed to", "Until"],
          users.flatMap(rows),
        );
  return {
    title: "Access",
    place: "access",
    content: html`<h1>Access</h1>
<p class="actions"><a class="button" href="/access/new">Add a user</a> <a class="button" href="/access/check">Would a query pass?</a></p>
${filter(view)}
${list}
${more}
<p class="quiet">Access version <code>${accessVersion}</code>. For each table the entry that names it decides, else a pattern, else that of its database, else that for <code>*</code>.</p>`,
  };
}

function entryActions(grant: Grant): Html {
  const { username, database, tables = [] } = grant;
  if (tables.length > 1)
    return html`<span class="hint">lists several tables: change it in the access file</span>`;
  const place = { user: username, database, table: tables[0] };
  const what = html`<span class="unseen"> the entry for ${placeOf(grant)}</span>`;
  return html`<span><a href="${pathOf("/access/entry", place)}">Change${what}</a> <a href="${pathOf("/access/end", place)}">End${what}</a></span>`;
}

function manage({ username, user }: UserPageView): Html {
  if (user === undefined) return nothing;
  const act = (action: string, label: string) =>
    html`<a class="button" href="${pathOf("/access/act", { user: username, action })}">${label}</a> `;
  return html`<h2>Account</h2><p class="actions">${act("password", "Set a new password")}${
    user.disabled ? act("enable", "Enable") : act("disable", "Disable")
  }${act("remove", "Remove")}</p>`;
}

/** The page of one user. */
export function userPage(view: UserPageView): ConsolePage {
  const { username, user, entries, now, isAdministrator } = view;
  const list =
    entries.length === 0
      ? html`<p class="sheet empty">There is no grant yet: this user may do nothing.</p>`
      : table(
          `Grants of ${username}`,
          ["Where", "Role", "Narrowed to", "Until", "Action"],
          entries.map((grant) => [
            html`<code>${placeOf(grant)}</code>`,
            grant.role,
            narrowing(grant),
            until(grant, now),
            entryActions(grant),
          ]),
        );
  const email =
    user?.email === undefined ? nothing : html`<p class="quiet"><bdi>${user.email}</bdi></p>`;
  return {
    title: username,
    place: "access",
    content: html`<p><a href="/access">Access</a></p>
<h1><bdi>${username}</bdi> ${stateOf(user)}</h1>
${email}
<h2>Grants</h2>
${list}
<p class="actions"><a class="button" href="${pathOf("/access/entry", { user: username })}">Grant</a> <a class="button" href="${pathOf("/access/check", { user: username })}">Would a query pass?</a> ${
      isAdministrator
        ? html`<a class="button" href="${pathOf("/sessions", { user: username })}">Sessions</a>`
        : nothing
    }</p>
${isAdministrator ? manage(view) : nothing}`,
  };
}
