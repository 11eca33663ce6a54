import { randomUUID } from "node:crypto";
import { refusalOf, send } from "../journeys/mcp.ts";
import type { TestGateway } from "../kit/gateway.ts";
import { statelessCall } from "../mcp/messages.ts";
import { PlainBrowser } from "./browser.ts";
import { allowAll, signInAt } from "./flow.ts";
import type { IdentityProvider } from "./identity-provider.ts";

/** Tokens of a user who has signed in through the provider `staff`. */
export interface ProviderSession {
  readonly sid: string;
  readonly clientId: string;
  readonly accessToken: string;
  readonly refreshToken: string;
  /** A token of the provider for the API, in the same session. */
  readonly jwt: string;
  readonly idToken: string;
}

export async function signInAs(
  gateway: Pick<TestGateway, "url">,
  provider: IdentityProvider,
  user: string,
): Promise<ProviderSession> {
  provider.user = user;
  const browser = new PlainBrowser(gateway.url, provider.url);
  const signedIn = await signInAt(gateway, browser);
  const tokens = await allowAll(gateway, browser, signedIn);
  const sid = provider.sids.at(-1) ?? "";
  const about = { sub: user, ...provider.users.get(user), sid, jti: randomUUID() };
  return {
    sid,
    clientId: signedIn.clientId,
    ...tokens,
    jwt: await provider.sign({ ...about, aud: "api" }),
    idToken: await provider.sign({ ...about, aud: "gatehouse", nonce: "n", at_hash: "h" }),
  };
}

const select = { Select: { database: "main", from: "t", columns: ["*"] } };

/** The refusals of the access token, and of the external token at both doors, or `good`. */
export async function goodTokens(
  gateway: TestGateway,
  { accessToken, jwt }: ProviderSession,
): Promise<string[]> {
  const list = statelessCall("tools/list");
  const codes = [
    refusalOf(await send(gateway, list, accessToken)),
    refusalOf(await send(gateway, list, jwt)),
    (await gateway.query(select, jwt)).body.code,
  ];
  return codes.map((code) => String(code ?? "good"));
}

/** Claims of a logout token, besides those that `sign` adds, without `sub` and `sid`. */
export function logoutClaims() {
  const events = { "http://schemas.openid.net/event/backchannel-logout": {} };
  return { aud: "gatehouse", jti: randomUUID(), events };
}
