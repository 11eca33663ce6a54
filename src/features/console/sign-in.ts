import { randomBytes } from "node:crypto";
import type { User } from "../../core/access/grant.ts";
import { explainLogin, html, loginError, loginFields } from "../../core/base/html.ts";
import { Refusal } from "../../core/base/refusal.ts";
import { checkPassword } from "../../core/identity/login.ts";
import { describeFailure, isRecent, type SignedIn } from "../oauth/client/sign-ins.ts";
import { RECENT_SECONDS } from "./changes.ts";
import { hidden, linkButton, pathOf, postForm, renderConsolePage } from "./frame.ts";
import { browserCookie, type ConsoleRequest, sessionCookie } from "./visit.ts";

/** A path of this console with its query; nothing that a browser could resolve to another site. */
const ownPath = /^\/(?![/\\])[\w/.@%?=&*:+-]*$/;

export function safeNext(given = "/"): string {
  return ownPath.test(given) ? given : "/";
}

export function signInFormOf(browser: string): string {
  return `console-sign-in:${browser}`;
}

/** Names the browser, so that a form or a sign-in that it starts ends in the same one. */
function keepBrowser(c: ConsoleRequest): string {
  const browser = browserCookie.read(c) || randomBytes(32).toString("base64url");
  browserCookie.keep(c, browser);
  return browser;
}

export function showSignIn(
  c: ConsoleRequest,
  user: string,
  next: string,
  refusal?: Refusal,
): Response {
  const { signIns, gateway } = c.var;
  const { publicUrl, configuration } = gateway;
  const { passwords } = configuration.auth;
  const error = refusal && explainLogin(refusal);
  const csrf = c.var.guard.tokenFor(signInFormOf(keepBrowser(c)));
  const links = signIns?.providers.map(({ prefix, label }) =>
    linkButton(label, `/sign-in/${prefix}`, { next }),
  );
  const form = html`${hidden("next", next)}
${loginFields(user, error)}
<div class="actions"><button class="primary">Sign in</button></div>`;
  const content = html`${loginError(error)}
${links && html`<p class="actions">${links}</p>`}
${passwords && postForm(csrf, "/sign-in", "", form)}
<p class="quiet after">Console of the gateway at <bdi>${publicUrl}</bdi>. Users see and end their own sessions and apps. Administrators and owners also manage access.</p>
<details class="quiet"><summary>Cannot sign in?</summary>
<ul>
${
  passwords &&
  html`<li>When a gateway first starts, it creates the administrator <code>admin</code>. It prints the password or writes it to the file <code>initial_admin_password</code>.</li>
<li>To reset a lost password, run <code>gatehouse user password &lt;name&gt;</code> on the gateway's machine.</li>`
}
<li>Users of an external authorization server cannot use the console${links && ", unless it has a button here"}.</li>
</ul></details>`;
  const title = error === undefined ? "Sign in" : "Error: sign in";
  const page = renderConsolePage({ title, heading: html`Sign in`, content });
  const { status, retryAfter } = refusal ?? {};
  if (retryAfter !== undefined) c.header("Retry-After", String(retryAfter));
  if (status === 429 || status === 503 || status === 403) return c.html(page, status);
  return c.html(page, refusal === undefined ? 200 : 401);
}

/** Ends the browser's session, if it has one, and opens another. */
export async function startSession(
  c: ConsoleRequest,
  user: User,
  credential?: string,
): Promise<void> {
  const { listener, sessions, session: old } = c.var;
  if (old !== undefined) await sessions.end(old);
  const { address } = listener.originOf(c.env.incoming);
  const userAgent = (c.req.header("user-agent") ?? "").slice(0, 256);
  sessionCookie.keep(c, await sessions.open(user, { address, userAgent }, credential));
}

export async function postSignIn(c: ConsoleRequest): Promise<Response> {
  const { gateway, listener, form } = c.var;
  const [username = "", password = ""] = [form.get("username"), form.get("password")];
  const next = safeNext(form.get("next"));
  const origin = listener.originOf(c.env.incoming);
  // An unknown username may be a password typed into the wrong field.
  const known = gateway.access.snapshot.users.has(username) ? username : undefined;
  const event = { user: known, address: origin.address };
  try {
    const user = await checkPassword(gateway.login, username, password, origin);
    gateway.audit.event("console_login", { ...event, outcome: "allowed" }, "info");
    await startSession(c, user);
    return c.redirect(next, 303);
  } catch (error) {
    if (!(error instanceof Refusal)) throw error;
    gateway.audit.event("console_login", { ...event, outcome: error.code }, "warn");
    return showSignIn(c, username, next, error);
  }
}

/** @throws Refusal `not_found` without sign-in through providers */
function signInsOf(c: ConsoleRequest) {
  const { signIns } = c.var;
  if (signIns === undefined) throw new Refusal("not_found");
  return { signIns, prefix: c.req.param("prefix") ?? "" };
}

function publicOriginOf({ var: { gateway, arrival } }: ConsoleRequest): string {
  return gateway.configuration.console.public_url || arrival.origin;
}

function redirectUriOf(c: ConsoleRequest): string {
  return `${publicOriginOf(c)}/callback/${c.req.param("prefix")}`;
}

/** Sends the browser to the provider. With `again`, the user has to authenticate there again. */
export async function startSignIn(c: ConsoleRequest): Promise<Response> {
  const { listener, arrival, countSignIn } = c.var;
  const { signIns, prefix } = signInsOf(c);
  const origin = publicOriginOf(c);
  // The provider redirects to this origin, where the browser then needs its cookie.
  if (origin !== arrival.origin) {
    return c.redirect(`${origin}${pathOf(c.req.path, c.req.query())}`, 303);
  }
  const retryAfter = await countSignIn(listener.originOf(c.env.incoming));
  if (retryAfter > 0) {
    throw new Refusal("rate_limited", { message: "Too many sign-ins were started", retryAfter });
  }
  try {
    const url = await signIns.begin(prefix, {
      redirectUri: redirectUriOf(c),
      next: safeNext(c.req.query("next")),
      browser: keepBrowser(c),
      ...(c.req.query("again") !== undefined && { prompt: "login", maxAge: 0 }),
    });
    return c.redirect(url, 303);
  } catch (error) {
    return showFailure(c, error);
  }
}

/** Shows and audits why a sign-in through a provider failed. */
function showFailure(c: ConsoleRequest, error: unknown): Response {
  if (!(error instanceof Refusal) || error.code === "not_found") throw error;
  const { gateway, listener } = c.var;
  const { address } = listener.originOf(c.env.incoming);
  gateway.audit.event("console_login", { ...describeFailure(error), address }, "warn");
  return showSignIn(c, "", "/", error);
}

/** Receives the provider's answer, and returns to the page that has asked for the sign-in. */
export async function finishSignIn(c: ConsoleRequest): Promise<Response> {
  const { gateway, listener } = c.var;
  const { signIns, prefix } = signInsOf(c);
  const { address } = listener.originOf(c.env.incoming);
  const query = new URL(c.req.url).search.slice(1);
  try {
    const { user, signedIn, issuer, maxAge, ...finished } = await signIns.finish(prefix, {
      redirectUri: redirectUriOf(c),
      query,
      browser: browserCookie.read(c) ?? "",
      snapshot: gateway.access.snapshot,
    });
    const next = safeNext(finished.next);
    await startSession(c, user, signedIn.credential);
    const event = { user: user.username, issuer, address, outcome: "allowed" };
    gateway.audit.event("console_login", event, "info");
    const isConfirmed = maxAge === undefined || isRecent(signedIn, RECENT_SECONDS);
    return isConfirmed ? c.redirect(next, 303) : showUnconfirmed(c, signedIn, next);
  } catch (error) {
    return showFailure(c, error);
  }
}

/** Without this page, the one that asked for a fresh sign-in would ask again and again. */
function showUnconfirmed(c: ConsoleRequest, { authTime }: SignedIn, next: string): Response {
  const problem =
    authTime === undefined
      ? html`The identity provider does not tell when you signed in: its ID token has no <code>auth_time</code>.`
      : html`The identity provider did not ask you to sign in again: <code>auth_time</code> of its ID token is too old.`;
  const content = html`<div class="note error" role="alert"><p>${problem}</p></div>
<p>You are signed in, but you cannot change access or approve queries.</p>
<p class="actions">${linkButton("Continue", next)}</p>`;
  return c.html(renderConsolePage({ title: "Sign-in not confirmed", content }));
}

export async function postSignOut(c: ConsoleRequest): Promise<Response> {
  const { gateway, listener, sessions, session } = c.var;
  if (session !== undefined) {
    await sessions.end(session);
    const { address } = listener.originOf(c.env.incoming);
    gateway.audit.event("console_logout", { user: session.username, address }, "info");
  }
  sessionCookie.drop(c);
  return c.redirect("/sign-in", 303);
}
