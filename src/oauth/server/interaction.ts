import type { IncomingMessage, ServerResponse } from "node:http";
import { type Client, errors } from "oidc-provider";
import { EVERY_DATABASE } from "../../access/roles.ts";
import { StateUnavailable } from "./adapter.ts";
import {
  type Choice,
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
  type InteractionContext,
  sendPage,
  type Visit,
} from "./interaction-context.ts";
import { forgetSession, logIn, showLogin } from "./login.ts";
import { consentPage } from "./pages/consent.ts";
import { endpoints, OFFLINE_ACCESS } from "./protocol.ts";

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

/** Tells the client that the user said no (RFC 6749, section 4.1.2.1). */
function deny(context: InteractionContext, visit: Visit): Promise<void> {
  context.options.onEvent("oauth_consent", { ...eventOf(visit), outcome: "denied" });
  const result = { error: "access_denied", error_description: "the user said no" };
  return context.provider.interactionFinished(visit.request, visit.response, result);
}

/** Logs the browser out and asks the same again. */
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

/** The client that asks. @throws OAuthProblem if it is gone, or its document cannot be had now */
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

/** Shows the page that an interaction waits at, or takes what was sent from it. */
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
