import { EVERY_DATABASE } from "../../../access/roles.ts";
import { type Html, html, nothing } from "../../../pages/html.ts";
import { staysOnMachine } from "../client-metadata.ts";
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
export function destinationOf(redirectUri: string): string {
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
