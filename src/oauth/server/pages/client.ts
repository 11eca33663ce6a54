import { isLoopbackHost } from "../redirects.ts";
import { type Html, html, nothing } from "./html.ts";

/** The client as the pages show it. */
export interface ClientView {
  readonly name: string;
  /** The host that the client is known by, if it is known by one. */
  readonly host: string | undefined;
  /** True if the operator has named the client in the configuration. */
  readonly isConfigured: boolean;
  readonly redirectUri: string;
}

function trust({ host, isConfigured }: ClientView): Html {
  if (isConfigured) return html`Set up by the operator of this gateway`;
  if (host !== undefined) return html`${host}`;
  return html`Registered itself; its name has not been checked`;
}

/** Who asks, and where the answer goes. */
export function clientDetails(client: ClientView): Html {
  return html`<dl>
<dt>App</dt><dd>${client.name}</dd>
<dt>Identity</dt><dd>${trust(client)}</dd>
<dt>Answer goes to</dt><dd>${new URL(client.redirectUri).host}</dd>
</dl>`;
}

/** A warning where the answer goes to whatever program listens on the user's own machine. */
export function loopbackWarning({ redirectUri }: ClientView): Html {
  if (!isLoopbackHost(new URL(redirectUri).hostname)) return nothing;
  return html`<div class="note"><p><strong>The answer goes to a program on your own computer.</strong>
Go on only if you started it yourself just now.</p></div>`;
}
