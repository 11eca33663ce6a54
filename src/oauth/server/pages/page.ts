import { createHash } from "node:crypto";
import { EVERY_DATABASE } from "../../../access/roles.ts";
import { Html, html, nothing, style } from "../../../pages/html.ts";
import { staysOnMachine } from "../client-documents.ts";
import type { Consent } from "../connections.ts";

/** A client that is known by its identity. */
export interface KnownClient {
  readonly name: string;
  /** The host that the client is known by, if it is known by one. */
  readonly host: string | undefined;
  /** True if the operator has named the client in the configuration. */
  readonly isConfigured: boolean;
}

/** The client that asks, as the pages show it. */
export interface ClientView extends KnownClient {
  readonly redirectUri: string;
}

/** By what a client is known. */
export function identityOf({ host, isConfigured }: KnownClient): Html {
  if (isConfigured) return html`Set up by the operator of this gateway`;
  if (host !== undefined) return html`${host}`;
  return html`Registered itself; its name has not been checked`;
}

/** Where an answer goes, as its reader can tell one place from another. */
function destinationOf(redirectUri: string): string {
  const { protocol, host } = new URL(redirectUri);
  return /^https?:$/.test(protocol) ? host : `the app that opens ${protocol} links`;
}

/** Who asks, and where the answer goes. */
export function clientDetails(client: ClientView): Html {
  return html`<dl>
<dt>App</dt><dd>${client.name}</dd>
<dt>Identity</dt><dd>${identityOf(client)}</dd>
<dt>Answer goes to</dt><dd>${destinationOf(client.redirectUri)}</dd>
</dl>`;
}

/** A warning where whatever program is the first on the user's own machine gets the answer. */
export function localWarning({ redirectUri }: ClientView): Html {
  if (!staysOnMachine(redirectUri)) return nothing;
  return html`<div class="note"><p><strong>The answer goes to a program on your own computer.</strong>
Go on only if you started it yourself just now.</p></div>`;
}

/** What a user has let an app do. */
export function permission({ database, readOnly }: Pick<Consent, "database" | "readOnly">): Html {
  const what = readOnly ? "only read" : "read and change";
  if (database === EVERY_DATABASE) return html`${what} all databases that you may use`;
  return html`${what} <strong>${database}</strong>`;
}

/** The tools that an app has called. */
export function calls(called: Iterable<string>): Html {
  const names = [...called];
  if (names.length === 0) return html`It has called no tool.`;
  return html`It has called ${names.join(", ")}.`;
}

/** A page: its title, and what stands in it. */
export interface Page {
  readonly title: string;
  readonly content: Html;
}

/** The source expression that lets this style, and no other, be applied (CSP, section 2.3.1). */
const styleSource = `'sha256-${createHash("sha256").update(style).digest("base64")}'`;

const styleElement = new Html(`<style>${style}</style>`);

/** The whole document. */
export function renderPage({ title, content }: Page): string {
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

/** Hosts that a source expression can name (CSP, section 2.3.1); others would end or widen it. */
const plainHost = /^[a-z0-9._-]+$/;

/**
 * Where a form of a page may lead: back here, and by the redirect of the answer to the client.
 * Where no host can be named, as of an IPv6 address or an app's own scheme, the scheme stands.
 */
function formTargets(redirectUri: string | undefined): string {
  const url = redirectUri === undefined ? null : URL.parse(redirectUri);
  if (url === null) return "'self'";
  const isNamed = /^https?:$/.test(url.protocol) && plainHost.test(url.hostname);
  return `'self' ${isNamed ? url.origin : url.protocol}`;
}

/** The headers of every page: kept by nobody, framed by nobody, without script. */
export function pageHeaders(redirectUri: string | undefined): Record<string, string> {
  const policy = [
    "default-src 'none'",
    `style-src ${styleSource}`,
    `form-action ${formTargets(redirectUri)}`,
    "frame-ancestors 'none'",
    "base-uri 'none'",
  ];
  return {
    "Content-Type": "text/html; charset=utf-8",
    "Content-Security-Policy": policy.join("; "),
    "Cache-Control": "no-store",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "same-origin",
  };
}

/** What went wrong, as OAuth names it, for the person in front of the page. */
interface PageError {
  readonly code: string;
  readonly description: string | undefined;
}

/** The part of a response that an error is written to. */
interface Answer {
  set(headers: Record<string, string>): void;
  accepts(...types: string[]): string | string[] | false;
  body: unknown;
}

/** What each code means to a person; others are told in general. */
const meanings: Readonly<Record<string, string>> = {
  invalid_client: "The app that sent you here is not known to this gateway.",
  invalid_redirect_uri: "The app wants the answer sent to an address that it has not registered.",
  invalid_request: "The app that sent you here has asked in a way that cannot be answered.",
  invalid_target: "The app has asked for something that this gateway does not guard.",
  server_error: "Something went wrong in the gateway. Its log says what.",
};

/** The page of an error. @param link the way back to the client, if there is one */
export function errorPage({ code, description }: PageError, link: Html = nothing): string {
  const meaning = meanings[code] ?? "This request cannot go on. Start again in the app.";
  const detail =
    description === undefined ? nothing : html`<p class="quiet">${code}: ${description}</p>`;
  return renderPage({
    title: "Request refused",
    content: html`<h1>This request cannot go on</h1>
<p>${meaning}</p>
<p>Nothing was allowed. You can close this page.</p>
${link}
${detail}`,
  });
}

/** Answers with a page, or for a program with JSON (RFC 6749, section 5.2). */
export function renderErrorPage(answer: Answer, error: PageError, link?: Html): void {
  answer.set(pageHeaders(undefined));
  if (answer.accepts("html", "json") === "json") {
    answer.set({ "Content-Type": "application/json; charset=utf-8" });
    answer.body = { error: error.code, error_description: error.description };
  } else answer.body = errorPage(error, link);
}

/** Answers with the page of an error that its client is told only if the user goes there. */
export function renderHeldAnswer(answer: Answer, location: URL): void {
  const { searchParams, href } = location;
  const error = {
    code: searchParams.get("error") ?? "invalid_request",
    description: searchParams.get("error_description") ?? undefined,
  };
  const place = destinationOf(href);
  renderErrorPage(
    answer,
    error,
    html`<p><a href="${href}" rel="noreferrer">Tell the app</a>, which leads to <bdi>${place}</bdi>.</p>`,
  );
}
