/** What commands need that talk to a running gateway as one of its users. */

import { invocation } from "../core/base/product.ts";
import { isLoopback } from "../core/config/addresses.ts";
import { basePathOf } from "../core/config/schema.ts";
import { type CommonOptions, loadFor } from "./options.ts";
import { failureLabel, UsageError } from "./output.ts";

/** Replacements for addresses that no client can connect to. */
const reachable = new Map([
  ["0.0.0.0", "127.0.0.1"],
  ["::", "::1"],
]);

export function report(text: string): void {
  process.stderr.write(`${failureLabel()} ${text}\n`);
}

const tokenSource = `a token from \`${invocation} token issue <username>\``;
export const tokenRemedy = `set $GATEHOUSE_TOKEN to ${tokenSource}`;

/** @throws UsageError without a token, and `Malformed` if it cannot be one */
export function readToken(Malformed: new (message: string) => Error = UsageError): string {
  const token = process.env.GATEHOUSE_TOKEN?.trim();
  if (!token) throw new UsageError(`$GATEHOUSE_TOKEN is not set; set it to ${tokenSource}`);
  // The message omits the text, since it may still be a secret.
  if (/^[A-Za-z0-9._~+/-]+=*$/.test(token)) return token;
  throw new Malformed("$GATEHOUSE_TOKEN does not contain a bearer token");
}

/** The gateway's base path, with or without `/mcp`. */
const gatewayPath = /^((?:\/[A-Za-z0-9._~-]+)*?)(?:\/mcp)?\/?$/;

/** @throws UsageError unless the text is the URL of a gateway or of its `/mcp` */
function readUrl(text: string, source: string): URL {
  const url = URL.parse(text);
  const [, basePath] = gatewayPath.exec(url?.pathname ?? "") ?? [];
  const isGateway = url !== null && basePath !== undefined && /^https?:$/.test(url.protocol);
  if (isGateway && url.username + url.password + url.search + url.hash === "") {
    return new URL(`${basePath}/mcp`, url);
  }
  throw new UsageError(
    `${source} is not the URL of a gateway; allowed: for example https://gate.example.com`,
  );
}

/** The URL of the gateway's `/mcp`. */
export function findGateway(options: CommonOptions): URL {
  if (options.url !== undefined) return readUrl(options.url, "--url");
  if (process.env.GATEHOUSE_URL) return readUrl(process.env.GATEHOUSE_URL, "$GATEHOUSE_URL");
  const { configuration } = loadFor(options);
  const { host, port, tls, public_url: publicUrl } = configuration.server;
  const basePath = basePathOf(configuration);
  if (publicUrl !== "") return readUrl(publicUrl + basePath, "server.public_url");
  if (port === 0)
    throw new UsageError("server.port is 0, so the port is unknown; name the gateway with --url");
  const name = reachable.get(host) ?? host;
  const scheme = tls.certificate === undefined ? "http" : "https";
  const authority = `${name.includes(":") ? `[${name}]` : name}:${port}`;
  return readUrl(`${scheme}://${authority}${basePath}`, "server.host");
}

export function warnIfReadable({ protocol, hostname, origin }: URL): void {
  if (protocol === "https:" || isLoopback(hostname)) return;
  report(`the token is sent to ${origin} without encryption; use https`);
}
