import type { IncomingMessage, ServerResponse } from "node:http";
import { setTimeout as delay } from "node:timers/promises";
import type { Client, Provider } from "oidc-provider";
import type { User } from "../../access/grant.ts";
import { epochSeconds } from "../../clock.ts";
import { credentialOf, earliestIssue } from "../../identity/authenticate.ts";
import {
  explainLogin,
  type FormGuard,
  type Html,
  html,
  loginError,
  loginFields,
  nothing,
} from "../../pages/html.ts";
import { Refusal } from "../../refusal.ts";
import { accountIdOf } from "./connections.ts";
import type { AuthorizationServerOptions } from "./options.ts";
import {
  type ClientView,
  clientDetails,
  type KnownClient,
  pageHeaders,
  renderPage,
} from "./pages/page.ts";
import type { StateStore } from "./state-store.ts";

type Interaction = Awaited<ReturnType<Provider["interactionDetails"]>>;

export interface InteractionContext {
  readonly provider: Provider;
  readonly options: AuthorizationServerOptions;
  readonly guard: FormGuard;
  readonly store: StateStore;
}

export interface Visit {
  readonly request: IncomingMessage;
  readonly response: ServerResponse;
  readonly interaction: Interaction;
  readonly client: Client;
  readonly view: ClientView;
}

export function describeClient(
  { clients }: Pick<AuthorizationServerOptions, "clients">,
  clientId: string,
  name: string | undefined,
): KnownClient {
  const documentUrl = URL.parse(clientId);
  const host = documentUrl?.protocol === "https:" ? documentUrl.host : undefined;
  return {
    name: name || host || "An app without a name",
    host,
    isConfigured: clients.some(({ client_id }) => client_id === clientId),
  };
}

/** @param redirectUri the client's redirect URI, to which a form on the page may lead */
export function sendPage(
  response: ServerResponse,
  page: string,
  redirectUri?: string,
  status = 200,
  headers: Readonly<Record<string, string>> = {},
): void {
  response.writeHead(status, { ...pageHeaders(redirectUri), ...headers }).end(page);
}

const LONGEST_WAIT_SECONDS = 2;

export interface LoginFailure {
  readonly username: string;
  readonly refusal: Refusal;
}

export function sendLogin(
  response: ServerResponse,
  csrf: string,
  client?: ClientView,
  failure?: LoginFailure,
): void {
  const { status, retryAfter } = failure?.refusal ?? {};
  const headers = retryAfter === undefined ? {} : { "Retry-After": String(retryAfter) };
  sendPage(response, loginPage(csrf, client, failure), client?.redirectUri, status, headers);
}

export function showLogin(
  { guard }: InteractionContext,
  { response, interaction, view }: Visit,
  failure?: LoginFailure,
): void {
  sendLogin(response, guard.tokenFor(interaction.uid), view, failure);
}

/**
 * A revocation covers everything issued up to a given second. A login within that second waits for
 * the next one, so that its tokens do not count as revoked.
 */
async function waitUntilItCounts(
  { revocations }: InteractionContext["options"],
  user: User,
): Promise<void> {
  const seconds = earliestIssue(revocations, user) - epochSeconds();
  if (seconds > LONGEST_WAIT_SECONDS) throw new Refusal("credentials_invalid");
  if (seconds > 0) await delay(seconds * 1000);
}

/** The browser's current login, which another of its pages may have created. */
function currentSession({ provider }: InteractionContext, { request, response }: Visit) {
  return provider.Session.get(provider.createContext(request, response));
}

export async function forgetSession(context: InteractionContext, visit: Visit): Promise<void> {
  const { provider } = context;
  const { interaction } = visit;
  const current = await currentSession(context, visit);
  if (current.accountId !== undefined) await current.destroy();
  if (interaction.session === undefined) return;
  const session = await provider.Session.findByUid(interaction.session.uid);
  await session?.destroy();
  delete interaction.session;
  await interaction.save(interaction.exp - epochSeconds());
}

/** Ends a login of another user, or one with an older password. */
async function forgetOthers(
  context: InteractionContext,
  visit: Visit,
  accountId: string,
): Promise<void> {
  const { accountId: current } = await currentSession(context, visit);
  const accounts = [current, visit.interaction.session?.accountId];
  const isOther = accounts.some((one) => one !== undefined && one !== accountId);
  if (isOther) await forgetSession(context, visit);
}

/** Checks the submitted login. Returns the account id, or the failure. */
export async function judgeLogin(
  { options }: Pick<InteractionContext, "options">,
  request: IncomingMessage,
  form: ReadonlyMap<string, string>,
  client?: string,
): Promise<string | LoginFailure> {
  const username = form.get("username") ?? "";
  const origin = options.originOf(request);
  // An unknown name is not logged, because it may be a password in the wrong field.
  const known = options.snapshot().users.has(username) ? username : undefined;
  const event = { user: known, client, address: origin.address };
  try {
    const user = await options.checkPassword(username, form.get("password") ?? "", origin);
    await waitUntilItCounts(options, user);
    options.onEvent("oauth_login", { ...event, outcome: "allowed" });
    return accountIdOf({ username: user.username, credential: credentialOf(user) });
  } catch (error) {
    if (!(error instanceof Refusal)) throw error;
    options.onEvent("oauth_login", { ...event, outcome: error.code });
    return { username, refusal: error };
  }
}

export async function logIn(
  context: InteractionContext,
  visit: Visit,
  form: ReadonlyMap<string, string>,
): Promise<void> {
  const { provider } = context;
  const { request, response, client } = visit;
  const accountId = await judgeLogin(context, request, form, client.clientId);
  if (typeof accountId !== "string") return showLogin(context, visit, accountId);
  await forgetOthers(context, visit, accountId);
  await provider.interactionFinished(request, response, {
    login: { accountId, amr: ["pwd"], remember: false },
  });
}

function nextSteps(client: ClientView): Html {
  return html`${clientDetails(client)}
<p class="quiet">The app never sees your password. What it may do, you decide on the next page.</p>`;
}

function loginPage(
  csrf: string,
  client: ClientView | undefined,
  { username = "", refusal }: Partial<LoginFailure> = {},
): string {
  const error = refusal && explainLogin(refusal);
  return renderPage({
    title: error === undefined ? "Log in" : "Error: log in",
    content: html`<h1>${client === undefined ? "Log in to see your connected applications" : html`Log in to go on to <bdi>${client.name}</bdi>`}</h1>
${loginError(error)}
<form method="post">
<input type="hidden" name="csrf" value="${csrf}">
${loginFields(username, error)}
<div class="actions">
<button class="primary" name="action" value="login">Log in</button>
${client === undefined ? nothing : html`<button name="action" value="deny" formnovalidate>Cancel</button>`}
</div>
</form>
${client === undefined ? nothing : nextSteps(client)}`,
  });
}
