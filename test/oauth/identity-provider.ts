import { randomBytes } from "node:crypto";
import { createServer, type IncomingMessage, type ServerResponse } from "node:http";
import {
  type CryptoKey,
  exportJWK,
  generateKeyPair,
  type JWK,
  type JWTHeaderParameters,
  SignJWT,
} from "jose";
import { Provider } from "oidc-provider";
import type { Test } from "tap";
import { listening } from "../kit/listening.ts";

export interface ProviderUser {
  sub: string;
  /** Absent: tokens have no such claim. */
  groups?: readonly string[];
  [claim: string]: unknown;
}

interface Clients {
  readonly redirectUris: readonly string[];
  readonly backchannelLogoutUri?: string;
  readonly more?: Readonly<Record<string, unknown>>;
}

/** A certified OpenID provider over real sockets, which signs `user` in without asking. */
export class IdentityProvider {
  static readonly clientId = "gatehouse";
  readonly clientSecret = randomBytes(16).toString("hex");
  readonly users = new Map<string, ProviderUser>();
  /** The user of the next sign-in. */
  user = "";
  /** How many seconds ago users authenticate. */
  loginAge = 0;
  /** Ignores that a user has to authenticate again, and does not tell when they did. */
  hidesAuthTime = false;
  /** False: sign-ins get no refresh token. */
  refreshes = true;
  /** False: only the userinfo endpoint tells the groups. */
  groupsInIdToken = true;
  /** Answers every request with this status, as a broken server does. */
  failure: number | undefined;
  /** Paths that answer with 500. */
  readonly failures = new Set<string>();
  /** The entries of the published key set, from its one key. */
  keySet: ((key: JWK) => unknown[]) | undefined;
  /** Changes answers in JSON, by path. */
  readonly changes = new Map<string, (answer: Record<string, unknown>) => object>();
  /** Requests wait for it before they are answered. */
  held: Promise<unknown> | undefined;
  /** Paths of all requests. */
  readonly requests: string[] = [];
  /** The provider's session ids at this client, newest last. */
  readonly sids: string[] = [];
  #provider: Provider | undefined;
  #privateKey: CryptoKey | undefined;
  #publicKey: JWK = {};
  #url = "";

  static async start(t: Test, ...users: ProviderUser[]): Promise<IdentityProvider> {
    const own = new IdentityProvider();
    for (const user of users) own.users.set(user.sub, user);
    own.user = users[0]?.sub ?? "";
    const server = createServer((request, response) => own.#serve(request, response));
    own.#url = `http://127.0.0.1:${await listening(t, server)}`;
    return own;
  }

  get url(): string {
    return this.#url;
  }

  get provider(): Provider {
    if (this.#provider === undefined) throw new Error("open comes first");
    return this.#provider;
  }

  /** The URLs of the gateway, which are known only once it listens. */
  async open({ redirectUris, backchannelLogoutUri, more }: Clients): Promise<void> {
    const { privateKey, publicKey } = await generateKeyPair("RS256", { extractable: true });
    this.#privateKey = privateKey;
    this.#publicKey = { ...(await exportJWK(publicKey)), alg: "RS256", kid: "one" };
    const { clientId: client_id } = IdentityProvider;
    const provider = new Provider(this.#url, {
      clients: [
        {
          client_id,
          client_secret: this.clientSecret,
          redirect_uris: [...redirectUris],
          grant_types: ["authorization_code", "refresh_token"],
          ...(backchannelLogoutUri && {
            backchannel_logout_uri: backchannelLogoutUri,
            backchannel_logout_session_required: true,
          }),
          ...more,
        },
      ],
      jwks: { keys: [{ ...(await exportJWK(privateKey)), alg: "RS256", use: "sig", kid: "one" }] },
      claims: { openid: ["sub", "groups", "tenant_id", "preferred_username", "acct"] },
      conformIdTokenClaims: false,
      features: {
        devInteractions: { enabled: false },
        backchannelLogout: { enabled: true },
        introspection: { enabled: true },
        rpInitiatedLogout: { enabled: true },
      },
      cookies: { keys: ["test"], names: { session: "idp", interaction: "idp_i", resume: "idp_r" } },
      interactions: { url: (_, { uid }) => `/interaction/${uid}` },
      findAccount: (_, id) => {
        const user = this.users.get(id);
        const { groups, ...rest } = user ?? { sub: id };
        const claims = (use: string) =>
          use === "id_token" && !this.groupsInIdToken ? rest : { ...rest, groups };
        return user && { accountId: id, claims };
      },
      extraTokenClaims: (_, token) => {
        const accountId = "accountId" in token ? token.accountId : "";
        return { groups: this.users.get(accountId)?.groups };
      },
      issueRefreshToken: () => this.refreshes,
      rotateRefreshToken: true,
      // The library's own dispatcher refuses loopback addresses.
      fetch: (url, { dispatcher: _, ...options }: RequestInit & { dispatcher?: unknown } = {}) =>
        fetch(url, options),
      pkce: { required: () => true },
    });
    provider.on("authorization.success", ({ oidc: { session, client } }) => {
      const sid = session?.sidFor(client?.clientId ?? "");
      if (sid !== undefined) this.sids.push(sid);
    });
    this.#provider = provider;
  }

  async #serve(request: IncomingMessage, response: ServerResponse): Promise<void> {
    const { url = "" } = request;
    const place = url.replace(/\?.*/, "");
    this.requests.push(place);
    await this.held;
    const isBroken = this.failures.has(place);
    if (this.failure !== undefined || isBroken) {
      response.writeHead(this.failure ?? 500).end("broken");
      return;
    }
    if (place === "/jwks" && this.keySet !== undefined) {
      response.end(JSON.stringify({ keys: this.keySet(this.#publicKey) }));
      return;
    }
    const change = this.changes.get(place);
    if (change !== undefined) {
      const end = response.end.bind(response);
      const changed = (body: unknown) => {
        const text = JSON.stringify(change(JSON.parse(String(body))));
        response.setHeader("content-length", Buffer.byteLength(text));
        return end(text);
      };
      Object.assign(response, { end: changed });
    }
    if (this.hidesAuthTime) request.url = url.replaceAll(/&(?:max_age|prompt)=\w+/g, "");
    if (!url.startsWith("/interaction/")) return this.provider.callback()(request, response);
    const { provider, user } = this;
    const { prompt, params, session } = await provider.interactionDetails(request, response);
    const accountId = session?.accountId ?? user;
    if (prompt.name === "login") {
      const ts = Math.floor(Date.now() / 1000) - this.loginAge;
      return provider.interactionFinished(request, response, { login: { accountId: user, ts } });
    }
    const grant = new provider.Grant({ accountId, clientId: String(params.client_id) });
    grant.addOIDCScope(String(params.scope));
    const grantId = await grant.save();
    return provider.interactionFinished(request, response, { consent: { grantId } });
  }

  /** A token with the provider's key, in place of what the library would issue. */
  async sign(
    claims: Readonly<Record<string, unknown>>,
    header: Partial<JWTHeaderParameters> = {},
  ): Promise<string> {
    if (this.#privateKey === undefined) throw new Error("open comes first");
    const now = Math.floor(Date.now() / 1000);
    return new SignJWT({ iss: this.#url, iat: now, exp: now + 120, ...claims })
      .setProtectedHeader({ alg: "RS256", kid: "one", ...header })
      .sign(this.#privateKey);
  }

  /** An opaque access token, which only introspection explains. @returns it and its end */
  async issue(accountId: string, audience: string) {
    const { provider } = this;
    const client = await provider.Client.find(IdentityProvider.clientId);
    if (client === undefined) throw new Error("no client");
    const grant = new provider.Grant({ accountId, clientId: client.clientId });
    const token = new provider.AccessToken({
      accountId,
      client,
      grantId: await grant.save(),
      gty: "authorization_code",
      scope: "query",
    });
    token.aud = audience;
    return { value: await token.save(), end: () => token.destroy() };
  }

  /**
   * Sends a logout token to the gateway, as the provider does when a session ends.
   *
   * @param sid empty: the token names only the user
   */
  async logOut(sub: string, sid = this.sids.at(-1) ?? ""): Promise<void> {
    const client: object | undefined = await this.provider.Client.find(IdentityProvider.clientId);
    // The declarations of the library lack this method.
    const notify: unknown = client && Reflect.get(client, "backchannelLogout");
    if (client === undefined || typeof notify !== "function") throw new Error("no client");
    const isRequired = "backchannelLogoutSessionRequired";
    Reflect.set(client, isRequired, sid !== "");
    try {
      await notify.call(client, sub, sid);
    } finally {
      // Otherwise ID tokens would have no `sid`.
      Reflect.set(client, isRequired, true);
    }
  }
}
