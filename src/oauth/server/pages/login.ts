import { type Html, html, nothing } from "../../../pages/html.ts";
import { type ClientView, clientDetails } from "./client.ts";
import { renderPage } from "./page.ts";

/** What the login page shows. */
export interface LoginView {
  /** The app to go on to; without one, the page of connected applications. */
  readonly client: ClientView | undefined;
  readonly csrf: string;
  readonly username: string;
  readonly error: string | undefined;
}

function nextSteps(client: ClientView): Html {
  return html`${clientDetails(client)}
<p class="quiet">The app never sees your password. What it may do, you decide on the next page.</p>`;
}

/** The login page. */
export function loginPage({ client, csrf, username, error }: LoginView): string {
  const note =
    error === undefined
      ? nothing
      : html`<div class="note error" role="alert" id="error"><p>${error}</p></div>`;
  const described = error === undefined ? nothing : html` aria-describedby="error"`;
  const focusName = username === "" ? html` autofocus` : nothing;
  const focusPassword = username === "" ? nothing : html` autofocus`;
  return renderPage({
    title: error === undefined ? "Log in" : "Error: log in",
    content: html`<h1>${client === undefined ? "Log in to see your connected applications" : html`Log in to go on to <bdi>${client.name}</bdi>`}</h1>
${note}
<form method="post">
<input type="hidden" name="csrf" value="${csrf}">
<div class="field">
<label for="username">Username</label>
<input id="username" name="username" value="${username}" autocomplete="username" autocapitalize="none" spellcheck="false" required maxlength="64"${described}${focusName}>
</div>
<div class="field">
<label for="password">Password</label>
<input id="password" name="password" type="password" autocomplete="current-password" required${described}${focusPassword}>
</div>
<div class="actions">
<button class="primary" name="action" value="login">Log in</button>
${client === undefined ? nothing : html`<button name="action" value="deny" formnovalidate>Cancel</button>`}
</div>
</form>
${client === undefined ? nothing : nextSteps(client)}`,
  });
}
