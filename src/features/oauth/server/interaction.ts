import { hash } from "node:crypto";
import type { IncomingMessage, ServerResponse } from "node:http";
import { setTimeout as delay } from "node:timers/promises";
import { type Client, errors, type KoaContextWithOIDC, type Provider } from "oidc-provider";
import { EVERY_DATABASE } from "../../../core/access/roles.ts";
import { epochSeconds } from "../../../core/base/clock.ts";
import {
  explainLogin,
  formatDate,
  type Html,
  html,
  loginError,
  loginFields,
} from "../../../core/base/html.ts";
import { Refusal } from "../../../core/base/refusal.ts";
import { earliestIssue, passwordFingerprint } from "../../../core/identity/authenticate.ts";
import { checkPassword } from "../../../core/identity/login.ts";
import { parseSignIn } from "../../../core/identity/sign-in.ts";
import { StateUnavailable } from "./adapter.ts";
import {
  type Choice,
  type Connection,
  type Consent,
  databaseChoices,
  findUser,
  formatAccountId,
  knownScopes,
  listConnections,
  parseAccountId,
  toDetail,
} from "./connections.ts";
import { OAuthProblem, readForm, seeOther } from "./http.ts";
import type { AuthorizationServerOptions, Visit } from "./options.ts";
import {
  type ClientView,
  calls,
  clientDetails,
  departurePage,
  describeClient,
  localWarning,
  pageHeaders,
  permission,
  renderPage,
} from "./pages.ts";
import {
  endpoints,
  issuerPath,
  lifetimes,
  type McpScope,
  OFFLINE_ACCESS,
  resumePath,
} from "./protocol.ts";
import { takeSignIn } from "./sign-in.ts";

interface Interaction extends Visit {
  readonly interaction: Awaited<ReturnType<Provider["interactionDetails"]>>;
  readonly client: Client;
  readonly view: ClientView;
}

export function sendPage(
  response: ServerResponse,
  page: string,
  status = 200,
  headers: Readonly<Record<string, string>> = {},
): void {
  response.writeHead(status, { ...pageHeaders, ...headers }).end(page);
}

interface LoginFailure {
  readonly username: string;
  readonly refusal: Refusal;
}

/**
 * @param next the path of this page, below that of the issuer
 * @param client undefined for the page of connected applications
 */
export function sendLogin(
  { options: { configuration, issuer, signIns }, response }: Visit,
  csrf: string,
  next: string,
  client?: ClientView,
  { username = "", refusal }: Partial<LoginFailure> = {},
): void {
  const { passwords } = configuration.auth;
  const error = refusal && explainLogin(refusal);
  const signIn = issuerPath(issuer) + endpoints.signIn;
  const links = signIns?.providers.map(
    ({ prefix, label }) =>
      html`<p class="actions"><a class="button" href="${signIn}/${prefix}?next=${encodeURIComponent(next)}">${label}</a></p>`,
  );
  const page = renderPage({
    title: error === undefined ? "Log in" : "Error: log in",
    content: html`<h1>${client === undefined ? "Log in to see your connected applications" : html`Log in to continue to <bdi>${client.name}</bdi>`}</h1>
${loginError(error)}
${links}
<form method="post">
<input type="hidden" name="csrf" value="${csrf}">
${passwords && loginFields(username, error)}
<div class="actions">
${passwords && html`<button class="primary" name="action" value="login">Log in</button>`}
${client && html`<button name="action" value="deny" formnovalidate>Cancel</button>`}
</div>
</form>
${
  client &&
  html`${clientDetails(client)}
<p class="quiet">The app never sees your password. On the next page you decide what it may do.</p>`
}`,
  });
  const { status, retryAfter } = refusal ?? {};
  const headers = retryAfter === undefined ? {} : { "Retry-After": String(retryAfter) };
  sendPage(response, page, status, headers);
}

/** @throws OAuthProblem unless the form has the token of the page that it belongs to */
export function requireOwnForm(
  { guard }: Visit,
  name: string,
  form: ReadonlyMap<string, string>,
): void {
  if (guard.isValid(name, form.get("csrf"))) return;
  const problem = "the form does not belong to this page; reload the page";
  throw new OAuthProblem(403, "invalid_request", problem);
}

function showLogin(visit: Interaction, failure?: LoginFailure): void {
  const { guard, interaction, view } = visit;
  const path = `${endpoints.interaction}/${interaction.uid}`;
  sendLogin(visit, guard.tokenFor(interaction.uid), path, view, failure);
}

/** The browser's session, which another of its pages may have created. */
function currentSession({ provider, request, response }: Visit) {
  return provider.Session.get(provider.createContext(request, response));
}

async function forgetSession(visit: Interaction): Promise<void> {
  const { provider, interaction } = visit;
  const current = await currentSession(visit);
  if (current.accountId !== undefined) await current.destroy();
  if (interaction.session === undefined) return;
  const session = await provider.Session.findByUid(interaction.session.uid);
  await session?.destroy();
  delete interaction.session;
  await interaction.save(interaction.exp - epochSeconds());
}

const MAX_WAIT_SECONDS = 2;

/** @returns the account id, or the failure */
export async function checkLogin(
  { options, request }: Visit,
  form: ReadonlyMap<string, string>,
  client?: string,
): Promise<string | LoginFailure> {
  const username = form.get("username") ?? "";
  if (!options.configuration.auth.passwords)
    return { username, refusal: new Refusal("credentials_invalid") };
  const origin = options.originOf(request);
  // An unknown name is not logged, because it may be a password in the wrong field.
  const known = options.access.snapshot.users.has(username) ? username : undefined;
  const event = { user: known, client };
  try {
    const user = await checkPassword(options.login, username, form.get("password") ?? "", origin);
    // A revocation covers everything issued up to a second. A login in that second waits for the
    // next one, so that its tokens do not count as revoked.
    const seconds = earliestIssue(options.revocations, user) - epochSeconds();
    if (seconds > MAX_WAIT_SECONDS) throw new Refusal("credentials_invalid");
    if (seconds > 0) await delay(seconds * 1000);
    options.onEvent("oauth_login", { ...event, outcome: "allowed" });
    return formatAccountId(user.username, passwordFingerprint(user));
  } catch (error) {
    if (!(error instanceof Refusal)) throw error;
    options.onEvent("oauth_login", { ...event, outcome: error.code });
    return { username, refusal: error };
  }
}

async function logIn(visit: Interaction, form: ReadonlyMap<string, string>): Promise<void> {
  const account = await checkLogin(visit, form, visit.client.clientId);
  return typeof account === "string" ? finishLogin(visit, account) : showLogin(visit, account);
}

async function finishLogin(visit: Interaction, accountId: string): Promise<void> {
  const { provider, request, response, interaction } = visit;
  const { accountId: current } = await currentSession(visit);
  // Ends a login of another user, or one with an older password.
  const isOther = (one: string | undefined) => one !== undefined && one !== accountId;
  if (isOther(current) || isOther(interaction.session?.accountId)) await forgetSession(visit);
  // The consent repeats it, which must not make the login later than a revocation in between.
  const login = { accountId, remember: false, ts: epochSeconds() };
  // An earlier consent may be that of another user.
  const options = { mergeWithLastSubmission: false };
  await provider.interactionFinished(request, response, { login }, options);
}

const meanings: Readonly<Record<McpScope, string>> = {
  "mcp:tools": "Use tools in your name, such as running queries",
  "mcp:resources": "Read resources in your name, such as the list of tables",
};

const days = String(lifetimes.grant / 86_400);

/** @param staysConnected true if refresh tokens let the client continue without the user */
function scopeList(issuer: string, scopes: readonly McpScope[], staysConnected: boolean): Html {
  const items = scopes.map((scope) => html`<li>${meanings[scope]}</li>`);
  const applications = issuerPath(issuer) + endpoints.applications;
  const stay = html`<li>Stay connected while you are away, for at most ${days} days or until you disconnect it under <a href="${applications}">connected applications</a></li>`;
  return html`<h2 id="scopes">It asks for permission to</h2>
<ul aria-labelledby="scopes">${items}${staysConnected && stay}</ul>`;
}

function lastConsent(last: Connection | undefined, appName: string): Html {
  if (last === undefined) return html`<p class="quiet">You have not allowed this app before.</p>`;
  const renamed = last.appName !== "" && last.appName !== appName;
  const name = renamed && html` Its name was <bdi>${last.appName}</bdi> then.`;
  return html`<p class="quiet">You last allowed it on ${formatDate(last.allowedAt)}, to ${permission(last)}.${name}
${calls(last.called)}</p>`;
}

/** Exactly one database is preselected, the previous choice if there is one. */
function databases(choices: readonly Choice[], last: string | undefined): Html {
  const named = choices.map(({ database }) => database);
  const chosen = named.find((name) => name === last) ?? named[0] ?? EVERY_DATABASE;
  const mark = (name: string) => name === chosen && html` selected`;
  const options = choices.map(
    ({ database, role }) =>
      html`<option value="${database}"${mark(database)}>Only ${database} (your role: ${role})</option>`,
  );
  return html`<div class="field">
<label for="database">Which databases?</label>
<select id="database" name="database">
<option value="${EVERY_DATABASE}"${mark(EVERY_DATABASE)}>All databases that you may use</option>
${options}
</select>
</div>`;
}

const reach = html`<fieldset>
<legend>What may it do there?</legend>
<label class="choice"><input type="radio" name="reach" value="read" required checked>
<span>Only read<br><span class="quiet">It can change nothing.</span></span></label>
<label class="choice"><input type="radio" name="reach" value="full" required>
<span>Read and change<br><span class="quiet">Everything that your own roles allow.</span></span></label>
</fieldset>`;

function signedInUsername({ interaction }: Interaction): string {
  return parseAccountId(interaction.session?.accountId ?? "").username;
}

/** @throws Refusal `token_revoked` if the login has ended */
async function choices(visit: Interaction): Promise<Choice[]> {
  const { options, interaction } = visit;
  const { accountId = "" } = interaction.session ?? {};
  const { loginTs: issuedAt = 0 } = await currentSession(visit);
  if (findUser(options, accountId, issuedAt) === undefined) throw new Refusal("token_revoked");
  const { username, credential } = parseAccountId(accountId);
  const signedIn =
    parseSignIn(credential) && (await options.signIns?.current(credential, username));
  return databaseChoices(options.access.snapshot, signedIn?.subject ?? { username });
}

async function showConsent(visit: Interaction): Promise<void> {
  const { options, store, guard, interaction, client, view } = visit;
  const username = signedInUsername(visit);
  const connections = await listConnections(store, username);
  // Another person may have had the name.
  const last = connections.find(
    ({ clientId, byProvider, accountId, allowedAt }) =>
      clientId === client.clientId &&
      !byProvider &&
      findUser(options, accountId, allowedAt) !== undefined,
  );
  const page = renderPage({
    title: "Allow access",
    content: html`<h1>Let <bdi>${view.name}</bdi> use your databases?</h1>
${clientDetails(view)}
${localWarning(view)}
${scopeList(options.issuer, knownScopes(interaction.params.scope), client.grantTypeAllowed("refresh_token"))}
${lastConsent(last, view.name)}
<form method="post">
<input type="hidden" name="csrf" value="${guard.tokenFor(interaction.uid)}">
${databases(await choices(visit), last?.database)}
${reach}
<div class="actions">
<button class="primary" name="action" value="allow">Allow</button>
<button name="action" value="deny" formnovalidate>Deny</button>
</div>
<p class="field quiet">Logged in as <strong>${username}</strong>.
<button class="link" name="action" value="switch" formnovalidate>Use another account</button></p>
</form>`,
  });
  sendPage(visit.response, page);
}

async function readChoice(visit: Interaction, form: ReadonlyMap<string, string>): Promise<Consent> {
  const database = form.get("database");
  const reach = form.get("reach");
  const offered = [EVERY_DATABASE, ...(await choices(visit)).map((one) => one.database)];
  if (database === undefined || !offered.includes(database)) {
    throw new OAuthProblem(400, "invalid_request", "choose one of the databases");
  }
  if (reach !== "read" && reach !== "full") {
    throw new OAuthProblem(400, "invalid_request", "choose what the app may do");
  }
  return { database, readOnly: reach === "read", appName: visit.view.name, byProvider: false };
}

function textsIn(parameter: unknown): string[] {
  return [parameter].flat().filter((value) => typeof value === "string");
}

async function allow(visit: Interaction, form: ReadonlyMap<string, string>): Promise<void> {
  const { provider, options, request, response, interaction, client } = visit;
  const accountId = interaction.session?.accountId;
  if (accountId === undefined) throw new OAuthProblem(400, "invalid_request", "not logged in");
  const consent = await readChoice(visit, form);
  const scopes = knownScopes(interaction.params.scope);
  const grant = new provider.Grant({ accountId, clientId: client.clientId });
  // The library looks the resource up as the client spelled it.
  for (const resource of textsIn(interaction.params.resource)) {
    grant.addResourceScope(resource, scopes.join(" "));
  }
  grant.addOIDCScope(OFFLINE_ACCESS);
  grant.addRar(toDetail(consent));
  const grantId = await grant.save();
  options.onEvent("oauth_consent", {
    ...loginEvent(visit),
    outcome: "allowed",
    database: consent.database,
    read_only: consent.readOnly,
    scopes,
  });
  await provider.interactionFinished(request, response, { consent: { grantId } });
}

function loginEvent(visit: Interaction) {
  const { clientId, clientName } = visit.client;
  return { user: signedInUsername(visit), client: clientId, client_name: clientName };
}

/** Reports `access_denied` to the client (RFC 6749, section 4.1.2.1). */
function deny(visit: Interaction): Promise<void> {
  const { provider, options, request, response } = visit;
  options.onEvent("oauth_consent", { ...loginEvent(visit), outcome: "denied" });
  const result = { error: "access_denied", error_description: "the user denied access" };
  return provider.interactionFinished(request, response, result);
}

async function restart(visit: Interaction, changes: Readonly<Record<string, string>> = {}) {
  const { options, interaction, response } = visit;
  await forgetSession(visit);
  await interaction.destroy();
  const parameters = new URLSearchParams();
  for (const [name, value] of Object.entries({ ...interaction.params, ...changes })) {
    for (const text of textsIn(value)) parameters.append(name, text);
  }
  seeOther(response, `${options.issuer}${endpoints.authorization}?${parameters}`);
}

/** @throws OAuthProblem if the client is unknown, or its document cannot be fetched now */
async function findClient({ provider }: Visit, clientId: string): Promise<Client> {
  try {
    const client = await provider.Client.find(clientId);
    if (client !== undefined) return client;
  } catch (error) {
    const isUnavailable = error instanceof StateUnavailable;
    if (isUnavailable || !(error instanceof errors.OIDCProviderError)) throw error;
    if (error.cause instanceof OAuthProblem) throw error.cause;
  }
  throw new OAuthProblem(400, "invalid_client", "the client no longer exists");
}

/** @returns undefined if the interaction has ended or belongs to another browser */
async function openInteraction(visit: Visit): Promise<Interaction | undefined> {
  const { provider, options, request, response } = visit;
  try {
    const interaction = await provider.interactionDetails(request, response);
    const client = await findClient(visit, String(interaction.params.client_id));
    const { redirect_uri: redirectUri } = interaction.params;
    const view = {
      ...describeClient(options.configuration.mcp, client.clientId, client.clientName),
      redirectUri: typeof redirectUri === "string" ? redirectUri : "",
    };
    return { ...visit, interaction, client, view };
  } catch (error) {
    if (error instanceof errors.SessionNotFound) return undefined;
    throw error;
  }
}

async function submit(visit: Interaction): Promise<void> {
  const { interaction, request } = visit;
  const form = await readForm(request);
  requireOwnForm(visit, interaction.uid, form);
  switch (`${interaction.prompt.name} ${form.get("action")}`) {
    case "login login":
      return logIn(visit, form);
    case "consent allow":
      return allow(visit, form);
    case "consent switch":
      // A provider would otherwise sign in the same account again.
      return restart(visit, { prompt: "login" });
    case "login deny":
    case "consent deny":
      return deny(visit);
    default:
      throw new OAuthProblem(400, "invalid_request", "choose one of the buttons");
  }
}

async function show(visit: Interaction): Promise<void> {
  if (visit.interaction.prompt.name !== "login") return showConsent(visit);
  const accountId = await takeSignIn(visit);
  return accountId === undefined ? showLogin(visit) : finishLogin(visit, accountId);
}

export async function interact(visit: Visit): Promise<void> {
  const { options, request, response } = visit;
  const interaction = await openInteraction(visit);
  if (interaction === undefined) {
    const [path = ""] = (request.url ?? "").split("?");
    return seeOther(response, options.issuer + resumePath(path.slice(path.lastIndexOf("/") + 1)));
  }
  try {
    await (request.method === "POST" ? submit(interaction) : show(interaction));
  } catch (error) {
    if (!(error instanceof Refusal) || error.code !== "token_revoked") throw error;
    // The sign-in has ended, so the user signs in again.
    await restart(interaction);
  }
}

/** Model in the state store: where a finished interaction has led its browser. */
const DEPARTURE = "Departure";

/** Only for the browser session that the interaction belongs to. */
function departureKey(session: string, path: string): string {
  return hash("sha256", `${session} ${path}`, "base64url");
}

/** Programs follow redirects, and do not know pages that refresh. */
function needsPage(issuer: string, { href }: URL, { headers }: IncomingMessage): boolean {
  const isBrowser = headers["user-agent"]?.startsWith("Mozilla/") ?? false;
  return isBrowser && !href.startsWith(`${issuer}${endpoints.interaction}/`);
}

/**
 * Leads browsers from the consent to the client by a page. A redirect would be a part of the
 * form's submission, and `form-action` would block wherever the client then redirects (CSP 3,
 * section 6.4.1).
 */
export function leadToClients(
  provider: Provider,
  { issuer, log, state: { store } }: AuthorizationServerOptions,
): void {
  provider.use(async (ctx: KoaContextWithOIDC, next) => {
    await next();
    const location = URL.parse(ctx.response.get("Location"));
    const isResumed = ctx.path.startsWith(issuerPath(issuer) + resumePath(""));
    if (!isResumed || location === null) return;
    const record = {
      payload: JSON.stringify({ location: location.href }),
      expires: epochSeconds() + lifetimes.interaction,
    };
    await store
      .put(DEPARTURE, departureKey(ctx.oidc.session?.uid ?? "", ctx.path), record)
      .catch((error: unknown) => log.warn({ err: error }, "a page cannot be loaded again"));
    if (!needsPage(issuer, location, ctx.req)) return;
    ctx.remove("Location");
    ctx.status = 200;
    ctx.set({ ...pageHeaders, Refresh: `0; url=${location.href}` });
    ctx.body = departurePage(location, false);
  });
}

/**
 * Finishes an interaction. Who loads its page again, or submits its form again, is led to the same
 * place: only the client uses a code up.
 */
export async function finishInteraction(visit: Visit, finish: () => Promise<void>): Promise<void> {
  const { provider, options, store, request, response } = visit;
  const [path = ""] = (request.url ?? "").split("?");
  const { uid } = await provider.Session.get(provider.createContext(request, response));
  const earlier = await store.find(DEPARTURE, departureKey(uid, path));
  if (earlier === undefined) return finish();
  const location = new URL(JSON.parse(earlier.payload).location);
  const { href, searchParams } = location;
  if (!needsPage(options.issuer, location, request)) return seeOther(response, href);
  const code = searchParams.get("code");
  const found = code === null ? undefined : await provider.AuthorizationCode.find(code);
  const isUsed = code !== null && found?.isValid !== true;
  const headers = isUsed ? {} : { Refresh: `0; url=${href}` };
  sendPage(response, departurePage(location, isUsed), 200, headers);
}
