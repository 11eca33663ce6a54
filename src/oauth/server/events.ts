import type { KoaContextWithOIDC, Provider } from "oidc-provider";
import { epochSeconds } from "../../clock.ts";
import { parseAccountId } from "./accounts.ts";
import { lifetimes } from "./lifetimes.ts";
import type { AuthorizationServerOptions } from "./options.ts";
import type { StateStore } from "./store.ts";

function fieldsOf({ oidc }: KoaContextWithOIDC) {
  const { AccessToken: token, Grant: grant } = oidc.entities;
  const accountId = grant?.accountId;
  return {
    client: oidc.client?.clientId,
    user: accountId === undefined ? undefined : parseAccountId(accountId).username,
    grant_type: oidc.params?.grant_type,
    token: token?.jti,
  };
}

/** Tells the audit what the protocol has done, and keeps the clients that are in use. */
export function observeProvider(
  provider: Provider,
  store: Pick<StateStore, "keepClient">,
  onEvent: AuthorizationServerOptions["onEvent"],
): void {
  provider.on("grant.success", (ctx) => {
    const clientId = ctx.oidc.client?.clientId;
    if (clientId !== undefined) {
      store.keepClient(clientId, epochSeconds() + lifetimes.usedClient);
    }
    onEvent("oauth_token", { ...fieldsOf(ctx), outcome: "allowed" });
  });
  provider.on("grant.error", (ctx, error) => {
    const detail = error.error_detail;
    onEvent("oauth_token", { ...fieldsOf(ctx), outcome: error.error, reason: detail });
  });
  provider.on("grant.revoked", (ctx) => {
    onEvent("oauth_replay", { ...fieldsOf(ctx), outcome: "grant revoked" });
  });
}
