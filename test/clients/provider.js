/** Stores the client id and tokens of an app, in the interface of the official library. */
export class Provider {
  /** How often new tokens were saved. */
  refreshes = 0;
  /** True once the user would have to log in again. */
  hasAsked = false;
  #client;
  #tokens;

  constructor({ client, tokens, redirectUrl }) {
    this.#client = client;
    this.#tokens = tokens;
    this.redirectUrl = redirectUrl;
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

  clientInformation() {
    return this.#client;
  }

  tokens() {
    return this.#tokens;
  }

  saveTokens(tokens) {
    this.refreshes++;
    this.#tokens = tokens;
  }

  redirectToAuthorization() {
    this.hasAsked = true;
  }

  saveCodeVerifier() {}

  codeVerifier() {
    return "";
  }

  invalidateCredentials(which) {
    if (which === "all" || which === "tokens") this.#tokens = undefined;
  }

  /** Replaces the access token by an invalid one. */
  expire() {
    this.#tokens = { ...this.#tokens, access_token: "gone.stale.bad" };
  }
}
