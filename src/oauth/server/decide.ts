import { EVERY_DATABASE } from "../../access/roles.ts";
import { parseAccountId } from "./accounts.ts";
import { connectionsOf } from "./connections.ts";
import { type Choice, type Consent, choicesOf, knownScopes, toDetail } from "./consent.ts";
import { OAuthProblem } from "./http.ts";
import { type InteractionContext, refuse, sendPage, type Visit } from "./interaction-context.ts";
import { forgetSession } from "./login.ts";
import { endpoints, OFFLINE_ACCESS } from "./metadata.ts";
import { consentPage } from "./pages/consent.ts";

function usernameOf({ interaction }: Visit): string {
  return parseAccountId(interaction.session?.accountId ?? "").username;
}

function choices({ options }: InteractionContext, visit: Visit): Choice[] {
  return choicesOf(options.snapshot(), usernameOf(visit));
}

/** Shows the consent page. */
export async function showConsent(context: InteractionContext, visit: Visit): Promise<void> {
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
  sendPage(visit, 200, page);
}

/** What the user has chosen. @throws OAuthProblem if it was not among the choices */
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

/** The resource as the client has spelled it, which is how the grant must know it. */
function askedResources({ interaction }: Visit): string[] {
  const { resource } = interaction.params;
  const asked: unknown[] = Array.isArray(resource) ? resource : [resource];
  return asked.filter((item) => typeof item === "string");
}

/** Makes the grant that the user has consented to, and goes back to the client. */
export async function allow(
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

/** Tells the client that the user said no. */
export function deny(context: InteractionContext, visit: Visit): Promise<void> {
  context.options.onEvent("oauth_consent", { ...eventOf(visit), outcome: "denied" });
  return refuse(context, visit, "access_denied", "the user said no");
}

/** Logs the browser out and asks the same again. */
export async function switchAccount(context: InteractionContext, visit: Visit): Promise<void> {
  const { interaction, response } = visit;
  await forgetSession(context, visit);
  await interaction.destroy();
  const parameters = new URLSearchParams();
  for (const [name, value] of Object.entries(interaction.params)) {
    const values: unknown[] = Array.isArray(value) ? value : [value];
    for (const one of values) if (typeof one === "string") parameters.append(name, one);
  }
  const again = `${context.options.issuer}${endpoints.authorization}?${parameters}`;
  response.writeHead(303, { Location: again, "Content-Length": "0", "Cache-Control": "no-store" });
  response.end();
}
