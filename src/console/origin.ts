import { isLoopback } from "../config/addresses.ts";

/** How a browser has come: by the public URL, or from this machine itself. */
export interface Arrival {
  /** The console's origin as the browser sees it. */
  readonly origin: string;
  /** True behind https: then the cookie is bound to the host, and to https. */
  readonly isSecure: boolean;
}

/** A host as URLs spell it, with its port, and nothing else. */
function readHost(host: string): URL | undefined {
  const url = URL.parse(`http://${host}`);
  const isPlain = url?.host === host.toLowerCase() || `${url?.host}:80` === host.toLowerCase();
  return url !== null && isPlain ? url : undefined;
}

/**
 * Tells by which of the console's names a request has come; undefined for every other name, so that
 * no page elsewhere can have its own name lead here (DNS rebinding).
 *
 * @param publicUrl empty if there is none
 * @param port the listener's
 * @param peer the address of who is connected
 */
export function arrivalOf(
  { publicUrl, port }: { publicUrl: string; port: number },
  host: string | undefined,
  peer: string,
): Arrival | undefined {
  if (host === undefined) return undefined;
  const isPublic = publicUrl !== "" && new URL(publicUrl).host === host.toLowerCase();
  if (isPublic) return { origin: publicUrl, isSecure: publicUrl.startsWith("https:") };
  const url = readHost(host);
  if (url === undefined || Number(url.port || 80) !== port) return undefined;
  const isLocal = isLoopback(url.hostname.replace(/^\[|\]$/g, "")) && isLoopback(peer);
  return isLocal ? { origin: url.origin, isSecure: false } : undefined;
}
