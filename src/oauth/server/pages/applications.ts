import { dateOf, type Html, html, nothing } from "../../../pages/html.ts";
import type { Connection } from "../connections.ts";
import { calls, identityOf, type KnownClient, permission } from "./client.ts";
import { renderPage } from "./page.ts";

/** An app that a user has let in, once or several times. */
export interface ApplicationView extends KnownClient {
  readonly clientId: string;
  readonly connections: readonly Connection[];
  /** The tools that it has called. */
  readonly called: ReadonlySet<string>;
}

/** What the page of connected applications shows. */
export interface ApplicationsView {
  readonly csrf: string;
  readonly username: string;
  readonly applications: readonly ApplicationView[];
}

function connection(one: Connection): Html {
  const renewed =
    one.renewedAt === undefined ? nothing : html`, last renewed ${dateOf(one.renewedAt)}`;
  return html`<li>${permission(one)}, since ${dateOf(one.allowedAt)}${renewed}</li>`;
}

function application(view: ApplicationView): Html {
  const { clientId, name, connections, called } = view;
  return html`<section class="app">
<h2><bdi>${name}</bdi></h2>
<p class="quiet">${identityOf(view)}. ${calls(called)}</p>
<p>It may:</p>
<ul>${connections.map(connection)}</ul>
<div class="actions"><button name="disconnect" value="${clientId}">Disconnect <bdi>${name}</bdi></button></div>
</section>`;
}

/** The page on which a user sees and ends what apps may do. */
export function applicationsPage({ csrf, username, applications }: ApplicationsView): string {
  const list =
    applications.length === 0
      ? html`<p>No app is connected.</p>`
      : html`<p>These apps may use your databases in your name. To disconnect one ends its access at once.</p>`;
  return renderPage({
    title: "Connected applications",
    content: html`<h1>Your connected applications</h1>
${list}
<form method="post">
<input type="hidden" name="csrf" value="${csrf}">
${applications.map(application)}
<p class="field quiet">Logged in as <strong>${username}</strong>.
<button class="link" name="action" value="logout">Log out</button></p>
</form>`,
  });
}
