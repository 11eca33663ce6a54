import type { Provider } from "oidc-provider";
import { endpoints } from "./metadata.ts";
import type { AuthorizationServerOptions } from "./options.ts";
import { renderHeldAnswer } from "./pages/error.ts";
import { isLoopbackRedirect } from "./redirects.ts";

/**
 * Makes an answer that nobody has acted on yet wait for its user. Whoever registers a client could
 * otherwise send any browser from here to a site or an app of its own, by a request that is bound
 * to fail (RFC 9700, section 4.11.2). To a program that listens on the user's own machine, and to
 * clients that the operator has named, it goes at once.
 */
export function holdAnswers(
  provider: Provider,
  { issuer, clients }: Pick<AuthorizationServerOptions, "issuer" | "clients">,
): void {
  const trusted = new Set(clients.map(({ client_id }) => client_id));
  provider.use(async (ctx, next) => {
    await next();
    const location = URL.parse(ctx.response.get("Location"));
    if (ctx.path !== endpoints.authorization || location === null) return;
    const { client_id: clientId } = ctx.query;
    const isTrusted = isLoopbackRedirect(location.href) || trusted.has(String(clientId));
    if (isTrusted || location.origin === issuer) return;
    ctx.remove("Location");
    ctx.status = 400;
    renderHeldAnswer(ctx, location);
  });
}
