import type { Grant, User } from "../../access/snapshot.ts";
import { type Html, html, nothing } from "../../pages/html.ts";
import { placeOf } from "../changes.ts";
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
  /** A database, or `database.table`. */
  readonly place: string;
  readonly users: readonly UserRow[];
  /** The name to go on after; undefined if all are shown. */
  readonly next: string | undefined;
  /** True if this is not the first page. */
  readonly isLater: boolean;
  readonly accessVersion: string;
  /** Epoch milliseconds. */
  readonly now: number;
}

/** Entries of one user that the list shows; the page of the user has them all. */
const SHOWN = 6;

function rows({ username, user, entries }: UserRow, now: number): (Html | string)[][] {
  const path = pathOf("/access/user", { user: username });
  const name = html`<a href="${path}"><bdi>${username}</bdi></a> ${accountMark(user)}`;
  const again = html`<span class="again"><bdi>${username}</bdi></span>`;
  if (entries.length === 0) return [[name, html`<span class="dim">no grant</span>`, "", "", ""]];
  const more = entries.length - SHOWN;
  const shown = entries
    .slice(0, SHOWN)
    .map((grant, at) => [
      at === 0 ? name : again,
      html`<code>${placeOf(grant)}</code>`,
      roleBadge(grant.role),
      narrowing(grant),
      until(grant, now),
    ]);
  const rest = html`<a href="${path}">and ${String(more)} more<span class="unseen"> entries of ${username}</span></a>`;
  return more > 0 ? [...shown, [again, rest, "", "", ""]] : shown;
}

function filter({ user, place }: AccessView): Html {
  return html`<form method="get" action="/access" class="tools" role="search">
<div class="field"><label for="user">User contains</label><input id="user" name="user" value="${user}" maxlength="128" autocapitalize="none" spellcheck="false"></div>
<div class="field"><label for="place">Database or table</label><input id="place" name="place" value="${place}" maxlength="127" placeholder="main, or main.tickets" autocapitalize="none" spellcheck="false"></div>
<button>Show</button>
</form>`;
}

function nobody({ user, place, isLater }: AccessView): Html {
  const offer =
    user === ""
      ? nothing
      : html` <a href="${pathOf("/access/entry", { user })}">Grant something to <bdi>${user}</bdi></a>.`;
  const sentence = isLater ? "There is nobody else." : "Nobody fits whom you may manage.";
  const isFiltered = user !== "" || place !== "";
  return html`<p class="sheet empty">${sentence}${offer}${isFiltered ? html` <a href="/access">Show everybody</a>.` : nothing}</p>`;
}

/** The page of users and grants. */
export function accessPage(view: AccessView): ConsolePage {
  const { users, next, user, place, isLater, now } = view;
  const first = html`<a class="button" href="${pathOf("/access", { user, place })}">First page</a> `;
  const after = html`<a class="button" href="${pathOf("/access", { user, place, after: next })}">More users</a>`;
  const actions = html`<a class="button" href="/access/check">Would a query pass?</a> <a class="button primary" href="/access/new">Add a user</a>`;
  const list =
    users.length === 0
      ? nobody(view)
      : table(
          "Users and grants",
          ["User", "Where", "Role", "Narrowed to", ["Until", "moment"]],
          users.flatMap((one) => rows(one, now)),
        );
  const rule = place.includes(".")
    ? html`Shown is the entry that decides on <code>${place}</code> now.`
    : html`For each table the entry that names it decides, else a pattern, else that of its database, else that for <code>*</code>.`;
  return {
    title: "Access",
    place: "access",
    content: html`${heading("Access", actions)}
${filter(view)}
${list}
${isLater || next !== undefined ? html`<p class="actions">${isLater ? first : nothing}${next === undefined ? nothing : after}</p>` : nothing}
<p class="quiet">${rule} Access version <code>${view.accessVersion}</code>.</p>`,
  };
}
