import { randomBytes } from "node:crypto";
import { checkPassword } from "../identity/login.ts";
import { explainLogin, html, loginError, loginFields } from "../pages/html.ts";
import { Refusal } from "../refusal.ts";
import { hidden, renderConsolePage } from "./frame.ts";
import { browserCookie, type ConsoleRequest, sessionCookie } from "./visit.ts";

/** A path of this console with its query; nothing that a browser could resolve to another site. */
const ownPath = /^\/(?![/\\])[\w/.@%?=&*:+-]*$/;

function nextOf(given: string | undefined): string {
  return given !== undefined && ownPath.test(given) ? given : "/";
}

export function signInFormOf(browser: string): string {
  return `console-sign-in:${browser}`;
}

interface Attempt {
  readonly username: string;
  readonly next: string;
  readonly refusal?: Refusal;
}

function showSignIn(c: ConsoleRequest, { username, next, refusal }: Attempt): Response {
  const { guard, options } = c.var;
  const browser = browserCookie.read(c) || randomBytes(32).toString("base64url");
  browserCookie.keep(c, browser);
  const error = refusal && explainLogin(refusal);
  const csrf = guard.tokenFor(signInFormOf(browser));
  const page = renderConsolePage(
    {
      title: error === undefined ? "Sign in" : "Error: sign in",
      content: html`<h1>Sign in</h1>
${loginError(error)}
<form method="post" action="/sign-in">
${hidden("csrf", csrf)}${hidden("next", next)}
${loginFields(username, error)}
<div class="actions"><button class="primary">Sign in</button></div>
</form>
<p class="quiet after">This is the console of the gateway at <bdi>${options.gatewayUrl}</bdi>. Whoever has a password there sees and ends their own sessions and apps here; administrators and owners also see who may do what.</p>
<details class="quiet"><summary>Cannot sign in?</summary>
<ul>
<li>The first start of a gateway makes the administrator <code>admin</code>, and prints its password or leaves it in the file <code>initial_admin_password</code>.</li>
<li>A password that is lost is set anew on the gateway's machine: <code>gatehouse user password &lt;name&gt;</code>.</li>
<li>Users of another authorization server have no password here, and so no console.</li>
</ul></details>`,
    },
    undefined,
  );
  if (refusal?.retryAfter !== undefined) c.header("Retry-After", String(refusal.retryAfter));
  if (refusal?.status === 429 || refusal?.status === 503) return c.html(page, refusal.status);
  return c.html(page, refusal === undefined ? 200 : 401);
}

/** `GET /sign-in`: the form; redirects a visitor who is already signed in. */
export function getSignIn(c: ConsoleRequest): Response {
  const next = nextOf(c.req.query("next"));
  if (c.var.session !== undefined) return c.redirect(next, 303);
  return showSignIn(c, { username: "", next });
}

/** `POST /sign-in`: logs in through the gateway and replaces the browser's old session. */
export async function postSignIn(c: ConsoleRequest): Promise<Response> {
  const { options, sessions, form, session: old } = c.var;
  const [username = "", password = ""] = [form.get("username"), form.get("password")];
  const next = nextOf(form.get("next"));
  const origin = options.originOf(c.env.incoming);
  // An unknown username may be a password typed into the wrong field.
  const known = options.access.snapshot.users.has(username) ? username : undefined;
  const event = { user: known, address: origin.address };
  try {
    const user = await checkPassword(options.login, username, password, origin);
    options.onEvent("console_login", { ...event, outcome: "allowed" }, "info");
    if (old !== undefined) await sessions.end(old.tokenId);
    const userAgent = (c.req.header("user-agent") ?? "").slice(0, 256);
    sessionCookie.keep(c, await sessions.open(user, { address: origin.address, userAgent }));
    return c.redirect(next, 303);
  } catch (error) {
    if (!(error instanceof Refusal)) throw error;
    options.onEvent("console_login", { ...event, outcome: error.code }, "warn");
    return showSignIn(c, { username, next, refusal: error });
  }
}

/** `POST /sign-out`: ends the session, even if the browser keeps the cookie. */
export async function postSignOut(c: ConsoleRequest): Promise<Response> {
  const { sessions, options, session } = c.var;
  if (session !== undefined) {
    await sessions.end(session.tokenId);
    const { address } = options.originOf(c.env.incoming);
    options.onEvent("console_logout", { user: session.username, address }, "info");
  }
  sessionCookie.drop(c);
  return c.redirect("/sign-in", 303);
}

/** True for a page that refreshes itself, which must not keep a session alive. */
function isRefresh(c: ConsoleRequest): boolean {
  return c.req.method === "GET" && c.req.query("refresh") === "auto";
}

/** The browser's session, unless it has ended. */
export async function sessionOf(c: ConsoleRequest) {
  const secret = sessionCookie.read(c);
  return secret === undefined ? undefined : c.var.sessions.use(secret, isRefresh(c));
}
