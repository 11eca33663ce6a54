import { EVERY_DATABASE } from "../../../access/roles.ts";
import { dateOf, type Html, html, nothing } from "../../../pages/html.ts";
import type { Choice, Connection } from "../connections.ts";
import { endpoints, lifetimes, type McpScope } from "../protocol.ts";
import { type ClientView, calls, clientDetails, localWarning, permission } from "./client.ts";
import { renderPage } from "./page.ts";

interface ConsentView {
  readonly client: ClientView;
  readonly csrf: string;
  readonly username: string;
  readonly scopes: readonly McpScope[];
  /** True if the client can go on without the user by refresh tokens. */
  readonly staysConnected: boolean;
  readonly choices: readonly Choice[];
  /** What the user let the app do the last time; undefined if never. */
  readonly last: Connection | undefined;
}

const meanings: Readonly<Record<McpScope, string>> = {
  "mcp:tools": "Use tools in your name, such as running queries",
  "mcp:resources": "Read resources in your name, such as the list of tables",
};

/** After so many days the user is asked again. */
const days = String(lifetimes.grant / 86_400);

function asked({ scopes, staysConnected }: ConsentView): Html {
  const items = scopes.map((scope) => html`<li>${meanings[scope]}</li>`);
  const stay = html`<li>Stay connected while you are away, until you disconnect it under <a href="${endpoints.applications}">connected applications</a> or ${days} days have passed</li>`;
  return html`<h2 id="asked">It asks to</h2>
<ul aria-labelledby="asked">${items}${staysConnected ? stay : nothing}</ul>`;
}

/** What is known of the app from the last time that the user let it in. */
function lastTime({ last, client }: ConsentView): Html {
  if (last === undefined) return html`<p class="quiet">You have not let this app in before.</p>`;
  const renamed = last.appName !== "" && last.appName !== client.name;
  const name = renamed ? html` It was called <bdi>${last.appName}</bdi> then.` : nothing;
  return html`<p class="quiet">Last time, on ${dateOf(last.allowedAt)}, you let it ${permission(last)}.${name}
${calls(last.called)}</p>`;
}

/** One database is chosen beforehand, that of the last time if there is one, and never more. */
function databases({ choices, last }: ConsentView): Html {
  const named = choices.map(({ database }) => database);
  const chosen = named.find((name) => name === last?.database) ?? named[0] ?? EVERY_DATABASE;
  const mark = (name: string) => (name === chosen ? html` selected` : nothing);
  const options = choices.map(
    ({ database, role }) =>
      html`<option value="${database}"${mark(database)}>Only ${database} (your role: ${role})</option>`,
  );
  return html`<div class="field">
<label for="database">Which databases?</label>
<select id="database" name="database">
<option value="${EVERY_DATABASE}"${mark(EVERY_DATABASE)}>All that you may use yourself</option>
${options}
</select>
</div>`;
}

const reach = html`<fieldset>
<legend>What may it do there?</legend>
<label class="choice"><input type="radio" name="reach" value="read" required checked>
<span>Only read<br><span class="quiet">It can change nothing.</span></span></label>
<label class="choice"><input type="radio" name="reach" value="full" required>
<span>Read and change<br><span class="quiet">Everything your own roles allow, and no more.</span></span></label>
</fieldset>`;

/** The page on which a user decides what a client may do. */
export function consentPage(view: ConsentView): string {
  const { client, csrf, username } = view;
  return renderPage({
    title: "Allow access",
    content: html`<h1>Let <bdi>${client.name}</bdi> use your databases?</h1>
${clientDetails(client)}
${localWarning(client)}
${asked(view)}
${lastTime(view)}
<form method="post">
<input type="hidden" name="csrf" value="${csrf}">
${databases(view)}
${reach}
<div class="actions">
<button class="primary" name="action" value="allow">Allow</button>
<button name="action" value="deny" formnovalidate>Deny</button>
</div>
<p class="field quiet">Logged in as <strong>${username}</strong>.
<button class="link" name="action" value="switch" formnovalidate>Use another account</button></p>
</form>`,
  });
}
