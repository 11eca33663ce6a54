import { hash } from "node:crypto";
import type { IncomingMessage } from "node:http";
import type { KoaContextWithOIDC, Provider } from "oidc-provider";
import { epochSeconds } from "../../../core/base/clock.ts";
import { seeOther } from "./http.ts";
import { sendPage } from "./interaction.ts";
import type { AuthorizationServerOptions, Visit } from "./options.ts";
import { departurePage, pageHeaders } from "./pages.ts";
import { endpoints, issuerPath, lifetimes, resumePath } from "./protocol.ts";

/** Model in the state store: where a finished interaction has led its browser. */
const DEPARTURE = "Departure";

/** Only for the browser session that the interaction belongs to. */
function departureKey(session: string, path: string): string {
  return hash("sha256", `${session} ${path}`, "base64url");
}

/** Programs follow redirects, and do not know pages that refresh. */
function needsPage(issuer: string, { href }: URL, { headers }: IncomingMessage): boolean {
  const isBrowser = headers["user-agent"]?.startsWith("Mozilla/") ?? false;
  return isBrowser && !href.startsWith(`${issuer}${endpoints.interaction}/`);
}

/**
 * Leads browsers from the consent to the client by a page. A redirect would be a part of the
 * form's submission, and `form-action` would block wherever the client then redirects (CSP 3,
 * section 6.4.1).
 */
export function leadToClients(
  provider: Provider,
  { issuer, log, state: { store } }: AuthorizationServerOptions,
): void {
  provider.use(async (ctx: KoaContextWithOIDC, next) => {
    await next();
    const location = URL.parse(ctx.response.get("Location"));
    const isResumed = ctx.path.startsWith(issuerPath(issuer) + resumePath(""));
    if (!isResumed || location === null) return;
    const record = {
      payload: JSON.stringify({ location: location.href }),
      expires: epochSeconds() + lifetimes.interaction,
    };
    await store
      .put(DEPARTURE, departureKey(ctx.oidc.session?.uid ?? "", ctx.path), record)
      .catch((error: unknown) => log.warn({ err: error }, "a page cannot be loaded again"));
    if (!needsPage(issuer, location, ctx.req)) return;
    ctx.remove("Location");
    ctx.status = 200;
    ctx.set({ ...pageHeaders, Refresh: `0; url=${location.href}` });
    ctx.body = departurePage(location, false);
  });
}

/**
 * Finishes an interaction. Who loads its page again, or submits its form again, is led to the same
 * place: only the client uses a code up.
 */
export async function finishInteraction(visit: Visit, finish: () => Promise<void>): Promise<void> {
  const { provider, options, store, request, response } = visit;
  const [path = ""] = (request.url ?? "").split("?");
  const { uid } = await provider.Session.get(provider.createContext(request, response));
  const earlier = await store.find(DEPARTURE, departureKey(uid, path));
  if (earlier === undefined) return finish();
  const location = new URL(JSON.parse(earlier.payload).location);
  const { href, searchParams } = location;
  if (!needsPage(options.issuer, location, request)) return seeOther(response, href);
  const code = searchParams.get("code");
  const found = code === null ? undefined : await provider.AuthorizationCode.find(code);
  const isUsed = code !== null && found?.isValid !== true;
  const headers = isUsed ? {} : { Refresh: `0; url=${href}` };
  sendPage(response, departurePage(location, isUsed), 200, headers);
}
