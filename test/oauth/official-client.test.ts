import {
  auth,
  type OAuthClientProvider,
  type OAuthDiscoveryState,
} from "@modelcontextprotocol/client";
import t from "tap";
import { PlainBrowser } from "./browser.ts";
import { CONFIGURED, openSetting, PASSWORD, REDIRECT } from "./kit.ts";

type Tokens = Parameters<OAuthClientProvider["saveTokens"]>[0];
type Client = NonNullable<Awaited<ReturnType<OAuthClientProvider["clientInformation"]>>>;

/** A client as the official SDK has it, that remembers in memory. */
class Notebook implements OAuthClientProvider {
  readonly redirectUrl = REDIRECT;
  readonly clientMetadata = {
    client_name: CONFIGURED.client_name,
    redirect_uris: [REDIRECT],
    grant_types: ["authorization_code", "refresh_token"],
    response_types: ["code"],
    token_endpoint_auth_method: "none",
  };
  sentTo: URL | undefined;
  #client: Client | undefined;
  #tokens: Tokens | undefined;
  #verifier = "";
  #discovery: OAuthDiscoveryState | undefined;

  clientInformation(): Client | undefined {
    return this.#client;
  }
  saveClientInformation(client: Client): void {
    this.#client = client;
  }
  tokens(): Tokens | undefined {
    return this.#tokens;
  }
  saveTokens(tokens: Tokens): void {
    this.#tokens = tokens;
  }
  redirectToAuthorization(url: URL): void {
    this.sentTo = url;
  }
  saveDiscoveryState(state: OAuthDiscoveryState): void {
    this.#discovery = state;
  }
  discoveryState(): OAuthDiscoveryState | undefined {
    return this.#discovery;
  }
  saveCodeVerifier(verifier: string): void {
    this.#verifier = verifier;
  }
  codeVerifier(): string {
    return this.#verifier;
  }
}

t.test("the official client finds its way in, and refreshes", async (t) => {
  const setting = await openSetting(t);
  const client = new Notebook();
  const serverUrl = `${setting.url}/mcp`;
  t.equal(await auth(client, { serverUrl }), "REDIRECT");
  const browser = new PlainBrowser(setting.url);
  const login = await browser.open(client.sentTo?.href ?? "");
  const right = { username: "alice", password: PASSWORD, action: "login" };
  const consent = await browser.submit(login, right);
  const yes = { database: "*", reach: "full", action: "allow" };
  const { searchParams } = new URL((await browser.submit(consent, yes)).url);
  const authorizationCode = searchParams.get("code") ?? "";
  const iss = searchParams.get("iss") ?? "";
  t.equal(await auth(client, { serverUrl, authorizationCode, iss }), "AUTHORIZED");
  const first = client.tokens()?.access_token ?? "";
  t.match(await setting.server.verify(first), { username: "alice", database: "*" });
  t.equal(await auth(client, { serverUrl }), "AUTHORIZED");
  const second = client.tokens()?.access_token ?? "";
  t.not(second, first);
  t.match(await setting.server.verify(second), { username: "alice" });
});
