import type { OAuthClientProvider, OAuthDiscoveryState } from "@modelcontextprotocol/client";

type Tokens = Parameters<OAuthClientProvider["saveTokens"]>[0];
type Client = NonNullable<Awaited<ReturnType<OAuthClientProvider["clientInformation"]>>>;

interface NotebookOptions {
  readonly clientMetadataUrl?: string;
  /** Without refresh tokens it has to ask its user again. */
}

export class Notebook implements OAuthClientProvider {
  readonly redirectUrl: string;
  readonly clientMetadataUrl?: string;
  sentTo: URL | undefined;
  #client: Client | undefined;
  #tokens: Tokens | undefined;
  #verifier = "";
  #discovery: OAuthDiscoveryState | undefined;

  constructor(redirectUrl: string, { clientMetadataUrl }: NotebookOptions = {}) {
    this.redirectUrl = redirectUrl;
    if (clientMetadataUrl !== undefined) this.clientMetadataUrl = clientMetadataUrl;
  }

  get clientMetadata() {
    return {
      client_name: "Notebook",
      redirect_uris: [this.redirectUrl],
      grant_types: ["authorization_code", "refresh_token"],
      response_types: ["code"],
      token_endpoint_auth_method: "none",
    };
  }
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
  invalidateCredentials(which: "all" | "client" | "tokens" | "verifier" | "discovery"): void {
    if (which === "all" || which === "tokens") this.#tokens = undefined;
    if (which === "all" || which === "client") this.#client = undefined;
  }
}
