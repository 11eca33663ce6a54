import type { IncomingMessage, ServerResponse } from "node:http";
import { type Client, errors } from "oidc-provider";
import { EVERY_DATABASE } from "../../access/roles.ts";
import { dateOf, type Html, html, nothing } from "../../pages/html.ts";
import { StateUnavailable } from "./adapter.ts";
import {
  type Choice,
  type Connection,
  type Consent,
  choicesOf,
  connectionsOf,
  knownScopes,
  parseAccountId,
  toDetail,
} from "./connections.ts";
import { OAuthProblem, readForm, seeOther } from "./http.ts";
import {
  describeClient,
  forgetSession,
  type InteractionContext,
  logIn,
  sendPage,
  showLogin,
  type Visit,
} from "./login.ts";
import {
  type ClientView,
  calls,
  clientDetails,
  localWarning,
  permission,
  renderPage,
} from "./pages/page.ts";
import { endpoints, lifetimes, type McpScope, OFFLINE_ACCESS } from "./protocol.ts";

interface ConsentView {
  readonly client: ClientView;
  readonly csrf: string;
  readonly username: string;
  readonly scopes: readonly McpScope[];
  /** True if refresh tokens let the client continue without the user. */
  readonly staysConnected: boolean;
  readonly choices: readonly Choice[];
  readonly last: Connection | undefined;
}

const meanings: Readonly<Record<McpScope, string>> = {
  "mcp:tools": "Use tools in your name, such as running queries",
  "mcp:resources": "Read resources in your name, such as the list of tables",
};

const days = String(lifetimes.grant / 86_400);

function asked({ scopes, staysConnected }: ConsentView): Html {
  const items = scopes.map((scope) => html`<li>${meanings[scope]}</li>`);
  const stay = html`<li>Stay connected while you are away, until you disconnect it under <a href="${endpoints.applications}">connected applications</a> or ${days} days have passed</li>`;
  return html`<h2 id="asked">It asks to</h2>
<ul aria-labelledby="asked">${items}${staysConnected ? stay : nothing}</ul>`;
}

function lastTime({ last, client }: ConsentView): Html {
  if (last === undefined) return html`<p class="quiet">You have not let this app in before.</p>`;
  const renamed = last.appName !== "" && last.appName !== client.name;
  const name = renamed ? html` It was called <bdi>${last.appName}</bdi> then.` : nothing;
  return html`<p class="quiet">Last time, on ${dateOf(last.allowedAt)}, you let it ${permission(last)}.${name}
${calls(last.called)}</p>`;
}

/** Exactly one database is preselected, the previous choice if there is one. */
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

function consentPage(view: ConsentView): string {
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

function usernameOf({ interaction }: Visit): string {
  return parseAccountId(interaction.session?.accountId ?? "").username;
}

function choices({ options }: InteractionContext, visit: Visit): Choice[] {
  return choicesOf(options.snapshot(), usernameOf(visit));
}

async function showConsent(context: InteractionContext, visit: Visit): Promise<void> {
  const { interaction, client, view } = visit;
  const connections = await connectionsOf(context.store, usernameOf(visit));
  const page = consentPage({
    client: view,
    csrf: context.guard.tokenFor(interaction.uid),
    username: usernameOf(visit),
    scopes: knownScopes(interaction.params.scope),
    staysConnected: client.grantTypeAllowed("refresh_token"),
    choices: choices(context, visit),
    last: connections.find(({ clientId }) => clientId === client.clientId),
  });
  sendPage(visit.response, page, view.redirectUri);
}

function readChoice(
  context: InteractionContext,
  visit: Visit,
  form: ReadonlyMap<string, string>,
): Consent {
  const database = form.get("database");
  const reach = form.get("reach");
  const offered = [EVERY_DATABASE, ...choices(context, visit).map((choice) => choice.database)];
  if (database === undefined || !offered.includes(database)) {
    throw new OAuthProblem(400, "invalid_request", "choose one of the databases");
  }
  if (reach !== "read" && reach !== "full") {
    throw new OAuthProblem(400, "invalid_request", "choose what the app may do");
  }
  return { database, readOnly: reach === "read", appName: visit.view.name };
}

/**
 * The resource as the client spelled it, because the library looks it up in the grant by that
 * spelling.
 */
function askedResources({ interaction }: Visit): string[] {
  const { resource } = interaction.params;
  const asked: unknown[] = Array.isArray(resource) ? resource : [resource];
  return asked.filter((item) => typeof item === "string");
}

async function allow(
  context: InteractionContext,
  visit: Visit,
  form: ReadonlyMap<string, string>,
): Promise<void> {
  const { provider, options } = context;
  const { request, response, interaction, client } = visit;
  const accountId = interaction.session?.accountId;
  if (accountId === undefined) throw new OAuthProblem(400, "invalid_request", "not logged in");
  const consent = readChoice(context, visit, form);
  const scopes = knownScopes(interaction.params.scope);
  const grant = new provider.Grant({ accountId, clientId: client.clientId });
  for (const resource of askedResources(visit)) grant.addResourceScope(resource, scopes.join(" "));
  grant.addOIDCScope(OFFLINE_ACCESS);
  grant.addRar(toDetail(consent));
  const grantId = await grant.save();
  options.onEvent("oauth_consent", {
    ...eventOf(visit),
    outcome: "allowed",
    database: consent.database,
    read_only: consent.readOnly,
    scopes,
  });
  await provider.interactionFinished(request, response, { consent: { grantId } });
}

function eventOf(visit: Visit) {
  const { clientId, clientName } = visit.client;
  return { user: usernameOf(visit), client: clientId, client_name: clientName };
}

/** Reports `access_denied` to the client (RFC 6749, section 4.1.2.1). */
function deny(context: InteractionContext, visit: Visit): Promise<void> {
  context.options.onEvent("oauth_consent", { ...eventOf(visit), outcome: "denied" });
  const result = { error: "access_denied", error_description: "the user said no" };
  return context.provider.interactionFinished(visit.request, visit.response, result);
}

async function switchAccount(context: InteractionContext, visit: Visit): Promise<void> {
  const { interaction, response } = visit;
  await forgetSession(context, visit);
  await interaction.destroy();
  const parameters = new URLSearchParams();
  for (const [name, value] of Object.entries(interaction.params)) {
    const values: unknown[] = Array.isArray(value) ? value : [value];
    for (const one of values) if (typeof one === "string") parameters.append(name, one);
  }
  const again = `${context.options.issuer}${endpoints.authorization}?${parameters}`;
  seeOther(response, again);
}

/** @throws OAuthProblem if the client is unknown, or its document cannot be fetched now */
async function findClient({ provider }: InteractionContext, clientId: string): Promise<Client> {
  try {
    const client = await provider.Client.find(clientId);
    if (client !== undefined) return client;
  } catch (error) {
    const isAway = error instanceof StateUnavailable;
    if (isAway || !(error instanceof errors.OIDCProviderError)) throw error;
  }
  throw new OAuthProblem(400, "invalid_client", "it is gone");
}

async function openVisit(
  context: InteractionContext,
  request: IncomingMessage,
  response: ServerResponse,
): Promise<Visit> {
  const { provider } = context;
  try {
    const interaction = await provider.interactionDetails(request, response);
    const client = await findClient(context, String(interaction.params.client_id));
    const { redirect_uri: redirectUri } = interaction.params;
    const view = {
      ...describeClient(context.options, client.clientId, client.clientName),
      redirectUri: typeof redirectUri === "string" ? redirectUri : "",
    };
    return { request, response, interaction, client, view };
  } catch (error) {
    if (!(error instanceof errors.SessionNotFound)) throw error;
    throw new OAuthProblem(400, "expired", "this page has expired, or belongs to another browser");
  }
}

async function submit(context: InteractionContext, visit: Visit): Promise<void> {
  const { interaction } = visit;
  const form = await readForm(visit.request);
  if (!context.guard.isRight(interaction.uid, form.get("csrf"))) {
    throw new OAuthProblem(403, "invalid_request", "the form was not sent from its own page");
  }
  const step = `${interaction.prompt.name} ${form.get("action")}`;
  switch (step) {
    case "login login":
      return logIn(context, visit, form);
    case "consent allow":
      return allow(context, visit, form);
    case "consent switch":
      return switchAccount(context, visit);
    case "login deny":
    case "consent deny":
      return deny(context, visit);
    default:
      throw new OAuthProblem(400, "invalid_request", "nothing was chosen");
  }
}

export async function interact(
  context: InteractionContext,
  request: IncomingMessage,
  response: ServerResponse,
): Promise<void> {
  const visit = await openVisit(context, request, response);
  if (request.method === "POST") return submit(context, visit);
  return visit.interaction.prompt.name === "login"
    ? showLogin(context, visit)
    : showConsent(context, visit);
}
