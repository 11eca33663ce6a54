import { createHash } from "node:crypto";
import { Html, html } from "../../../pages/html.ts";
import { style } from "../../../pages/style.ts";

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
