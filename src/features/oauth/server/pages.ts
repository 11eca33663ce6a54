import { createHash } from "node:crypto";
import type { KoaContextWithOIDC } from "oidc-provider";
import { EVERY_DATABASE } from "../../../core/access/roles.ts";
import { Html, html, style } from "../../../core/base/html.ts";
import { isLocalRedirect } from "./client-documents.ts";
import type { Consent } from "./connections.ts";
import type { ConfiguredClient } from "./options.ts";

type KnownClient = ReturnType<typeof describeClient>;

export function describeClient(
  { clients }: { readonly clients: readonly ConfiguredClient[] },
  clientId: string,
  name: string | undefined,
) {
  const documentUrl = URL.parse(clientId);
  const host = documentUrl?.protocol === "https:" ? documentUrl.host : undefined;
  return {
    name: name || host || "Unnamed app",
    host,
    isConfigured: clients.some(({ client_id }) => client_id === clientId),
  };
}

export interface ClientView extends KnownClient {
  readonly redirectUri: string;
}

export function clientIdentity({ host, isConfigured }: KnownClient): Html {
  if (isConfigured) return html`Set up by the operator of this gateway`;
  if (host !== undefined) return html`${host}`;
  return html`Registered itself; its name is unverified`;
}

function redirectTarget(redirectUri: string): string {
  const { protocol, host } = new URL(redirectUri);
  return /^https?:$/.test(protocol) ? host : `the app that opens ${protocol} links`;
}

export function clientDetails(client: ClientView): Html {
  return html`<dl>
<dt>App</dt><dd>${client.name}</dd>
<dt>Identity</dt><dd>${clientIdentity(client)}</dd>
<dt>Redirects to</dt><dd>${redirectTarget(client.redirectUri)}</dd>
</dl>`;
}

/** Warns about redirects to the user's own machine, where any program may receive the response. */
export function localWarning({ redirectUri }: ClientView): Html | undefined {
  if (!isLocalRedirect(redirectUri)) return undefined;
  return html`<div class="note"><p><strong>This gives access to a program on your own computer.</strong>
Continue only if you have just started it yourself.</p></div>`;
}

export function permission({ database, readOnly }: Consent): Html {
  const what = readOnly ? "only read" : "read and change";
  if (database === EVERY_DATABASE) return html`${what} all databases that you may use`;
  return html`${what} <strong>${database}</strong>`;
}

export function calls(called: Iterable<string>): Html {
  const names = [...called];
  if (names.length === 0) return html`It has called no tools.`;
  return html`It has called ${names.join(", ")}.`;
}

/** CSP source that allows this style element and no other (CSP, section 2.3.1). */
const styleSource = `'sha256-${createHash("sha256").update(style).digest("base64")}'`;
const styleElement = new Html(`<style>${style}</style>`);

export function renderPage({ title, content }: { title: string; content: Html }): string {
  return String(html`<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>${title} - Gatehouse</title>
${styleElement}
</head>
<body>
<header>Gatehouse</header>
<main>
${content}
</main>
<footer>Is this the gateway you know? Look at the address bar.</footer>
</body>
</html>
`);
}

export const pageHeaders = {
  "Content-Type": "text/html; charset=utf-8",
  "Content-Security-Policy": [
    "default-src 'none'",
    `style-src ${styleSource}`,
    "form-action 'self'",
    "frame-ancestors 'none'",
    "base-uri 'none'",
  ].join("; "),
  "Cache-Control": "no-store",
  "X-Content-Type-Options": "nosniff",
  "X-Frame-Options": "DENY",
  "Referrer-Policy": "same-origin",
} as const;

interface PageError {
  readonly code: string;
  readonly description: string | undefined;
}

type Answer = Pick<KoaContextWithOIDC, "set" | "accepts" | "body">;

const meanings: Readonly<Record<string, string>> = {
  invalid_client:
    "This gateway does not know the app that sent you here. Remove this gateway from the app and add it again.",
  invalid_client_metadata:
    "This gateway does not know the app that sent you here: it cannot use what the app says about itself. Try again in a few minutes. If that does not help, ask the operator of this gateway, whose log has the reason.",
  invalid_redirect_uri: "The app wants to redirect you to an address that it has not registered.",
  invalid_request: "The app that sent you here made an invalid request.",
  expired: "This page has expired or belongs to another browser. Start again in the app.",
  invalid_target: "The app asks for access to something that this gateway does not protect.",
  sign_in_refused: "Your identity provider did not sign you in. Start again in the app.",
  groups_unavailable:
    "Your identity provider does not say in which groups you are. Ask your administrator.",
  sign_in_expired: "The sign-in took too long, or another browser has started it.",
  server_error: "The gateway failed. Its log contains the reason.",
};

export function errorPage({ code, description }: PageError, link?: Html): string {
  const meaning = meanings[code] ?? "Start again in the app.";
  const detail = description !== undefined && html`<p class="quiet">${code}: ${description}</p>`;
  return renderPage({
    title: "Request refused",
    content: html`<h1>This request was refused</h1>
<p>${meaning}</p>
<p>No access was given. You can close this page.</p>
${link}
${detail}`,
  });
}

/** Sends a page to browsers and JSON to programs (RFC 6749, section 5.2). */
export function renderErrorPage(answer: Answer, error: PageError, link?: Html): void {
  answer.set(pageHeaders);
  if (answer.accepts("html", "json") === "json") {
    answer.set({ "Content-Type": "application/json; charset=utf-8" });
    answer.body = { error: error.code, error_description: error.description };
  } else answer.body = errorPage(error, link);
}

/** The client learns of the error only if the user follows the link. */
export function renderHeldRedirect(answer: Answer, location: URL): void {
  const { searchParams, href } = location;
  const error = {
    code: searchParams.get("error") ?? "invalid_request",
    description: searchParams.get("error_description") ?? undefined,
  };
  const link = html`<p><a href="${href}" rel="noreferrer">Return to <bdi>${redirectTarget(href)}</bdi></a>.</p>`;
  renderErrorPage(answer, error, link);
}

/**
 * A page that refreshes to the client. The link is for browsers that open apps only after a click.
 *
 * @param isUsed true if the client has already used the answer
 */
export function departurePage({ href }: URL, isUsed: boolean): string {
  return renderPage({
    title: "Return to the app",
    content: isUsed
      ? html`<h1>The app already has its answer</h1>
<p>You can close this page. If the app is not connected, start again there.</p>`
      : html`<h1>Returning to <bdi>${redirectTarget(href)}</bdi></h1>
<p>If nothing happens, continue with the button.</p>
<p class="actions"><a class="button" href="${href}" rel="noreferrer">Return to the app</a></p>`,
  });
}
