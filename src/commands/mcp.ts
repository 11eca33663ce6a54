import type { Command } from "commander";
import { isLoopback } from "../config/addresses.ts";
import { invocation } from "../product.ts";
import { loadFor } from "./load.ts";
import { type CommonOptions, defineCommand } from "./options.ts";
import { failureLabel, UsageError } from "./output.ts";
import { shutdownSignal } from "./shutdown-signal.ts";

/** Replacements for addresses that no client can connect to. */
const reachable = new Map([
  ["0.0.0.0", "127.0.0.1"],
  ["::", "::1"],
]);

function report(text: string): void {
  process.stderr.write(`${failureLabel()} ${text}\n`);
}

function readToken(): string {
  const token = process.env.GATEHOUSE_TOKEN?.trim();
  if (!token) {
    throw new UsageError(
      `$GATEHOUSE_TOKEN is not set; set it to a token from \`${invocation} token issue <username>\``,
    );
  }
  // The message omits the text, since it may still be a secret.
  if (/^[A-Za-z0-9._~+/-]+=*$/.test(token)) return token;
  throw new UsageError("$GATEHOUSE_TOKEN does not contain a bearer token");
}

/** @throws UsageError unless the path is empty or `/mcp` */
function readUrl(text: string, source: string): URL {
  const url = URL.parse(text);
  const isGateway =
    url !== null && /^https?:$/.test(url.protocol) && /^\/(?:mcp)?$/.test(url.pathname);
  if (isGateway && url.username + url.password + url.search + url.hash === "") {
    return new URL("/mcp", url);
  }
  throw new UsageError(
    `${source} is not the URL of a gateway; allowed: for example https://gate.example.com`,
  );
}

function findUrl(options: CommonOptions): URL {
  if (options.url !== undefined) return readUrl(options.url, "--url");
  if (process.env.GATEHOUSE_URL) return readUrl(process.env.GATEHOUSE_URL, "$GATEHOUSE_URL");
  const { host, port, tls, public_url: publicUrl } = loadFor(options).configuration.server;
  if (publicUrl !== "") return readUrl(publicUrl, "server.public_url");
  if (port === 0)
    throw new UsageError("server.port is 0, so the port is unknown; name the gateway with --url");
  const name = reachable.get(host) ?? host;
  const scheme = tls.certificate === undefined ? "http" : "https";
  return readUrl(`${scheme}://${name.includes(":") ? `[${name}]` : name}:${port}`, "server.host");
}

async function run(options: CommonOptions): Promise<void> {
  const token = readToken();
  const url = findUrl(options);
  if (url.protocol !== "https:" && !isLoopback(url.hostname)) {
    report(`the token is sent to ${url.origin} without encryption; use https`);
  }
  // Loaded on demand, since the protocol library would slow down every other command.
  const { isTokenRefused, removeResponseTimeouts, rpcErrorOf, StdioBridge } = await import(
    "../mcp/stdio.ts"
  );
  removeResponseTimeouts();
  const remedy = `set $GATEHOUSE_TOKEN to a token from \`${invocation} token issue <username>\``;
  const bridge = new StdioBridge({
    url,
    token,
    write: (line) => process.stdout.write(`${line}\n`),
    onError(error) {
      const { message } = rpcErrorOf(error, url);
      if (!isTokenRefused(error)) return report(message);
      report(`${url.origin} rejected the token (${message}); ${remedy} and start again`);
    },
  });
  await bridge.start();
  // The client has gone if standard input ends or standard output fails.
  const outputFails = new Promise((resolve) => process.stdout.on("error", resolve));
  const signal = shutdownSignal(() => process.exit());
  await Promise.race([bridge.forwardAll(process.stdin), outputFails, signal]);
  await bridge.close();
  process.exit();
}

const help = `
mcp             connect an MCP client that speaks stdio to a gateway
  --stdio       read messages from standard input and write responses to standard output (required)
  --url <url>   the gateway (default: $GATEHOUSE_URL, else the address in the configuration)
`;

export function mcpCommand(): Command {
  const command = defineCommand(help, { mcp: run });
  return command.addHelpText("after", "\nThe token is read from $GATEHOUSE_TOKEN.");
}
