import type { IncomingMessage, ServerResponse } from "node:http";
import { type Client, errors } from "oidc-provider";
import { allow, deny, showConsent, switchAccount } from "./decide.ts";
import { OAuthProblem, readForm } from "./http.ts";
import { type InteractionContext, type Visit, viewClient } from "./interaction-context.ts";
import { logIn, showLogin } from "./login.ts";

/** The client that asks. @throws OAuthProblem if it is gone, or its document cannot be had now */
async function findClient({ provider }: InteractionContext, clientId: string): Promise<Client> {
  try {
    const client = await provider.Client.find(clientId);
    if (client !== undefined) return client;
  } catch (error) {
    if (!(error instanceof errors.OIDCProviderError)) throw error;
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
    const view = viewClient(context, client, interaction);
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
