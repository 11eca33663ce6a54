import { type Page, PlainBrowser } from "./browser.ts";
import {
  authorizeUrl,
  makePkce,
  type OAuthSetup,
  PASSWORD,
  postForm,
  REDIRECT,
  registered,
} from "./kit.ts";

type Server = Pick<OAuthSetup, "url">;

interface Tokens {
  readonly accessToken: string;
  readonly refreshToken: string;
  readonly body: Record<string, unknown>;
}

interface FlowOptions {
  readonly clientId?: string;
  readonly username?: string;
  readonly password?: string;
  readonly database?: string;
  readonly reach?: "read" | "full";
  readonly browser?: PlainBrowser;
  readonly parameters?: Readonly<Record<string, string>>;
}

interface Authorized {
  readonly clientId: string;
  readonly verifier: string;
  readonly callback: URL;
  readonly redirectUri: string;
}

/** Follows the authorization request through both pages to the client's redirect. */
export async function authorize(setting: Server, options: FlowOptions = {}): Promise<Authorized> {
  const clientId = options.clientId ?? (await registered(setting));
  const browser = options.browser ?? new PlainBrowser(new URL(setting.url).origin);
  const { verifier, challenge } = makePkce();
  const redirectUri = options.parameters?.redirect_uri ?? REDIRECT;
  const parameters = { client_id: clientId, code_challenge: challenge, ...options.parameters };
  let page = await browser.open(authorizeUrl(setting, parameters));
  if (page.text.includes('value="login"')) {
    const { username = "alice", password = PASSWORD } = options;
    page = await browser.submit(page, { username, password, action: "login" });
  }
  const { database = "*", reach = "full" } = options;
  page = await browser.submit(page, { database, reach, action: "allow" });
  return { clientId, verifier, callback: new URL(page.url), redirectUri };
}

/** Opens the login page of an authorization request, and follows its link to the provider `staff`. */
export async function signInAt(setting: Server, browser: PlainBrowser, more = {}) {
  const clientId = await registered(setting);
  const { verifier, challenge } = makePkce();
  const parameters = { client_id: clientId, code_challenge: challenge, ...more };
  const login = await browser.open(authorizeUrl(setting, parameters));
  const [, link = ""] = /href="([^"]*\/oauth\/sign-in\/staff[^"]*)"/.exec(login.text) ?? [];
  const page = await browser.open(new URL(link, setting.url).href);
  return { clientId, verifier, login, link, page };
}

/** Allows everything on the page after a sign-in, and exchanges the code. */
export async function allowAll(
  setting: Server,
  browser: PlainBrowser,
  { clientId, verifier, page }: { clientId: string; verifier: string; page: Page },
) {
  const answers = { database: "*", reach: "full", action: "allow" };
  const callback = new URL((await browser.submit(page, answers)).url);
  const { body } = await exchange(setting, { clientId, verifier, callback, redirectUri: REDIRECT });
  return { accessToken: String(body.access_token), refreshToken: String(body.refresh_token) };
}

/** Exchanges a code. An empty field is left out. */
export function exchange(
  setting: Server,
  { clientId, verifier, callback, redirectUri }: Authorized,
  changes: Readonly<Record<string, string>> = {},
) {
  const fields = {
    grant_type: "authorization_code",
    client_id: clientId,
    code: callback.searchParams.get("code") ?? "",
    code_verifier: verifier,
    redirect_uri: redirectUri,
    resource: `${setting.url}/mcp`,
    ...changes,
  };
  const given = Object.entries(fields).filter(([, value]) => value !== "");
  return postForm(`${setting.url}/oauth/token`, Object.fromEntries(given));
}

export function refresh(setting: Server, clientId: string, refreshToken: string) {
  return postForm(`${setting.url}/oauth/token`, {
    grant_type: "refresh_token",
    client_id: clientId,
    refresh_token: refreshToken,
    resource: `${setting.url}/mcp`,
  });
}

/** Authorizes a client and exchanges its code. */
export async function obtainTokens(
  setting: Server,
  options: FlowOptions = {},
): Promise<Tokens & Authorized> {
  const authorized = await authorize(setting, options);
  const { body, status } = await exchange(setting, authorized);
  if (status !== 200) throw new Error(`no tokens: ${JSON.stringify(body)}`);
  const accessToken = String(body.access_token);
  return { ...authorized, accessToken, refreshToken: String(body.refresh_token), body };
}
